"""Histories of leases written by hand, for the tests of the checker: one line an operation.

Moments are milliseconds of the clients' clock; hub time is that much and ``HUB_AHEAD``.
"""

from dataclasses import replace
from typing import Final

from tests.robustness.lease_history import (
    Answer,
    Arguments,
    Call,
    Entry,
    Fault,
    Happening,
    History,
    Operation,
    Outcome,
    history_of,
)

MILLISECOND: Final = 1_000_000
HUB_AHEAD: Final = 1_000_000
TTL: Final = 2_000
WIDTH: Final = 5
"""How long before and after its moment an operation was sent and answered."""


def hub_nanos(at: int) -> int:
    return (at + HUB_AHEAD) * MILLISECOND


class Script:
    """Collects operations; each method adds one that the hub did at ``at``, and returns its number."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def history(self) -> History:
        return history_of(self.entries)

    def add(
        self,
        call: Call,
        holder: str,
        at: int,
        *,
        arguments: Arguments | None = None,
        answer: Answer | None = None,
        reason: str = "",
        sent: int | None = None,
        answered: int | None = None,
    ) -> int:
        number = len(self.entries) + 1
        asked = arguments or Arguments()
        first = (at - WIDTH if sent is None else sent) * MILLISECOND
        last = (at + WIDTH if answered is None else answered) * MILLISECOND
        outcome = Outcome.REFUSED if reason else Outcome.OK
        if reason == "unknown":
            outcome, reason = Outcome.UNKNOWN, ""
        asked = replace(asked, runtime_id=asked.runtime_id or "r", holder_id=asked.holder_id or holder)
        resource = "" if call == Call.HUB_TIME else "x"
        self.entries.append(
            Operation(number, holder, call, resource, asked, first, last, outcome, reason, answer or Answer())
        )
        return number

    def grant(
        self,
        call: Call,
        holder: str,
        at: int,
        *,
        token: int,
        epoch: int = 0,
        since: int | None = None,
        nonce: str = "",
        wait: int = 0,
        request_id: str = "",
        abort: str = "",
        is_replayed: bool = False,
        sent: int | None = None,
        answered: int | None = None,
    ) -> int:
        """Add an acquire, takeover or renewal that was granted; ``since``: the tenure began before."""
        asked = Arguments(
            nonce=nonce or f"{holder}-nonce",
            token=token if call == Call.RENEW else 0,
            ttl_nanos=TTL * MILLISECOND,
            wait_nanos=wait * MILLISECOND,
            request_id=request_id,
        )
        is_renewed = (since is not None) if call == Call.ACQUIRE else None
        answer = _lease(holder, at, token=token, epoch=epoch, since=since)
        waited = at - sent if wait and sent is not None else 0
        answer = replace(
            answer,
            is_renewed=is_renewed,
            abort_reason=abort,
            waited_nanos=waited * MILLISECOND,
            is_replayed=is_replayed,
        )
        return self.add(call, holder, at, arguments=asked, answer=answer, sent=sent, answered=answered)

    def refuse(
        self,
        call: Call,
        holder: str,
        at: int,
        *,
        reason: str,
        token: int = 0,
        nonce: str = "",
        answer: Answer | None = None,
        wait: int = 0,
        request_id: str = "",
        sent: int | None = None,
        answered: int | None = None,
    ) -> int:
        """Add what was refused, or with the reason ``unknown`` what was not answered."""
        asked = Arguments(
            nonce=nonce or f"{holder}-nonce",
            token=token,
            ttl_nanos=TTL * MILLISECOND,
            wait_nanos=wait * MILLISECOND,
            request_id=request_id,
        )
        return self.add(
            call, holder, at, arguments=asked, reason=reason, answer=answer, sent=sent, answered=answered
        )

    def held(self, holder: str, at: int, *, by: str, until: int, sent: int | None = None) -> int:
        """Add an acquire that was refused for another holder."""
        told = Answer(holder_id=by, expire_nanos=hub_nanos(until))
        return self.refuse(Call.ACQUIRE, holder, at, reason="LEASE_HELD", answer=told, sent=sent)

    def end(
        self, call: Call, holder: str, at: int, *, token: int, nonce: str = "", request_id: str = ""
    ) -> int:
        """Add a release, a finish or a check that went well."""
        asked = Arguments(nonce=nonce or f"{holder}-nonce", token=token, request_id=request_id)
        answer = Answer(cause="") if call == Call.CHECK else Answer()
        return self.add(call, holder, at, arguments=asked, answer=answer)

    def transfer(self, holder: str, at: int, *, to: str, token: int) -> int:
        ttl_nanos = TTL * MILLISECOND
        asked = Arguments("", "", f"{holder}-nonce", token, ttl_nanos, 0, "r", to)
        answer = _lease(to, at, token=token + 1, epoch=0, since=at)
        return self.add(Call.TRANSFER, holder, at, arguments=asked, answer=answer)

    def abort(self, at: int, *, reason: str, told: str = "", token: int = 0) -> int:
        asked = Arguments(token=token, abort_reason=reason)
        return self.add(Call.ABORT, "", at, arguments=asked, answer=Answer(abort_reason=told or reason))

    def maintain(self, call: Call, holder: str, at: int, *, token: int, epoch: int) -> int:
        """Add the begin or a renewal of a maintenance."""
        is_begin = call == Call.BEGIN_MAINTENANCE
        asked = Arguments(
            nonce=f"{holder}-nonce", token=0 if is_begin else token, ttl_nanos=TTL * MILLISECOND
        )
        answer = Answer(
            token=token if is_begin else None,
            epoch=epoch,
            ttl_nanos=TTL * MILLISECOND,
            expire_nanos=hub_nanos(at + TTL),
        )
        return self.add(call, holder, at, arguments=asked, answer=answer)

    def read(
        self, at: int, *, token: int, epoch: int = 0, state: str, holder: str = "", until: int = 0
    ) -> int:
        answer = Answer(token=token, epoch=epoch, state=state)
        if holder:
            answer = replace(answer, holder_id=holder, expire_nanos=hub_nanos(until))
        return self.add(Call.STATE, "reader", at, answer=answer)

    def fault(self, happening: Happening, at: int) -> None:
        self.entries.append(Fault(happening, at * MILLISECOND))


def _lease(holder: str, at: int, *, token: int, epoch: int, since: int | None) -> Answer:
    return Answer(
        token=token,
        epoch=epoch,
        runtime_id="r",
        holder_id=holder,
        ttl_nanos=TTL * MILLISECOND,
        acquire_nanos=hub_nanos(at if since is None else since),
        renew_nanos=hub_nanos(at),
        expire_nanos=hub_nanos(at + TTL),
        abort_reason="",
        is_maintenance=False,
    )
