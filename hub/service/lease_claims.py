"""Which grants nobody has heard of: one is given back once no call that could tell of it is under way.

A client whose connection broke asks again under the same nonce, often before the hub has noticed that the
first call is gone. What the later call is told must stay true; where that one is gone as well, nobody has
heard. One event loop uses this module.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hub.core.receipt import LeaseAnswer, Repeat
from hub.core.tenure import Claim, Tenure
from hub.service.lease_queue import QueueKey

ClaimKey = tuple[QueueKey, str, str, bytes]


class Unheard(NamedTuple):
    """A tenure that was granted and that nobody has heard of, and the calls that were granted it."""

    tenure: Tenure
    repeats: frozenset[Repeat]


@dataclass(slots=True)
class _UnderWay:
    """The calls of one claim that are under way."""

    call_count: int = 0
    is_heard: bool = False
    is_opened_by_lost: bool = False
    newest: Tenure | None = None
    """The newest state of the tenure that a lost call was granted."""
    repeats: set[Repeat] = field(default_factory=set)


class ClaimCalls:
    """The calls that are under way, by what they claim."""

    def __init__(self) -> None:
        """Begin with none."""
        self._under_way: dict[ClaimKey, _UnderWay] = {}

    def begin(self, key: QueueKey, claim: Claim) -> ClaimKey:
        """Note a call, and return what names its claim; ``end`` must follow."""
        holder = claim.holder
        claim_key = (key, holder.runtime_id, holder.holder_id, claim.nonce_hash)
        self._under_way.setdefault(claim_key, _UnderWay()).call_count += 1
        return claim_key

    def lose(self, claim_key: ClaimKey, answer: LeaseAnswer, *, repeat: Repeat | None) -> None:
        """Note what was granted to a call that is under way and whose caller is gone."""
        calls = self._under_way[claim_key]
        if repeat is not None:
            calls.repeats.add(repeat)
        if answer.is_replayed:
            return
        if not answer.is_renewed:
            calls.is_opened_by_lost = True
        newest = calls.newest
        if newest is None or (answer.is_renewed and answer.tenure.renew_nanos >= newest.renew_nanos):
            calls.newest = answer.tenure

    def end(self, claim_key: ClaimKey, *, is_heard: bool) -> Unheard | None:
        """Forget a call; after the last one of its claim, return what nobody has heard of.

        ``is_heard`` says that its caller is told what it was granted.
        """
        calls = self._under_way[claim_key]
        calls.call_count -= 1
        calls.is_heard = calls.is_heard or is_heard
        if calls.call_count:
            return None
        del self._under_way[claim_key]
        if calls.newest is None or calls.is_heard or not calls.is_opened_by_lost:
            return None
        return Unheard(calls.newest, frozenset(calls.repeats))
