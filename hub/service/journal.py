"""The journal as use cases that change it: commits, and what becomes of outbox messages.

Each is one command for the writer, before ingest: check and write are in one transaction, and what is
told is durable, refusals too (see ``hub.service.leases``). Their time is the command's. Commits, which
may be large, have a lane of their own, so that no lease waits for more of them than one group holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hub.core.errors import NotFound
from hub.core.journal import (
    Commit,
    CommitResult,
    OutboxId,
    decide_commit,
    decide_recovery,
    stream_resource,
)
from hub.core.limits import Limits
from hub.core.outbox import (
    Answered,
    OutboxMessage,
    OutboxOutcome,
    decide_acknowledge,
    decide_claim,
    decide_release,
    decide_return,
)
from hub.core.quota import check_stored_bytes, stored_bytes_of_commit
from hub.core.selection import PageBounds
from hub.core.values import Caller, HubProject
from hub.service.instruments import Instruments, NoInstruments
from hub.service.rates import HubRates
from hub.service.token_book import check_still_counts
from hub.service.writer import AsyncWriter, Lane
from hub.store.contract import WriteTransaction
from hub.store.journal_contract import JournalWrites

CLAIM_ROUNDS_MAX: Final = 16
"""How often one claim looks for others where messages turn out to be dead; the next one goes on."""


class Committed(NamedTuple):
    """What a commit became; ``is_recovered`` where it had happened before."""

    result: CommitResult
    is_recovered: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """Messages that were claimed at a moment, each with its own claim id, and until when they are.

    ``next_available_nanos`` is when the next message of the destination becomes available, as things
    stand (not after now where one is available already); None where none is in sight.
    """

    messages: Sequence[OutboxMessage]
    now_nanos: int
    claim_expire_nanos: int
    next_available_nanos: int | None


class OutboxView(NamedTuple):
    """A message at a moment."""

    message: OutboxMessage
    now_nanos: int


class OutboxAnswer(NamedTuple):
    """A message after an answer about it at a moment, and what that changed."""

    message: OutboxMessage
    outcome: OutboxOutcome
    now_nanos: int


class Journal:
    """The use cases that change the journal."""

    def __init__(
        self,
        writer: AsyncWriter,
        *,
        rates: HubRates,
        limits: Limits,
        new_claim_id: Callable[[], str],
        credential_nanos: Callable[[], int],
        instruments: Instruments | None = None,
    ) -> None:
        """Bind the writer; ``new_claim_id`` makes ids by chance, on any thread, ``credential_nanos`` gives
        the time by which credentials end. ``instruments`` count the commits.
        """
        self._writer = writer
        self._rates = rates
        self._limits = limits
        self._new_claim_id = new_claim_id
        self._credential_nanos = credential_nanos
        self._instruments = instruments or NoInstruments()

    # --- commits ---

    async def commit(self, caller: Caller, commit: Commit, *, bytes_count: int) -> Committed:
        """Store all of a commit or nothing, once a message id; ``bytes_count`` is the request's size.

        Raises: RateLimited, IdempotencyConflict, StaleLease, RevisionConflict, InvalidRequest, LimitReached,
        QuotaExceeded, and what the writer raises.
        """
        hub_project = caller.hub_project
        self._rates.check_commit(hub_project, event_count=len(commit.events), bytes_count=bytes_count)

        def command(transaction: WriteTransaction, now_nanos: int) -> Committed:
            check_still_counts(transaction, caller, credential_nanos=self._credential_nanos())
            journal = transaction.journal
            recovered = decide_recovery(commit, journal.commit(hub_project, commit.message_id))
            if recovered is not None:
                self._instruments.commit_stored(hub_project, events=0, is_recovered=True)
                return Committed(recovered, is_recovered=True)
            resource = transaction.leases.resource(hub_project, stream_resource(commit.stream_id))
            found = journal.found(hub_project, commit, resource=resource)
            accepted = decide_commit(commit, found, now_nanos=now_nanos)
            transaction.check_room()
            added_bytes = stored_bytes_of_commit(commit)
            check_stored_bytes(transaction.usage(hub_project), added_bytes, limits=self._limits)
            journal.save_commit(hub_project, commit, found=found, accepted=accepted)
            self._instruments.commit_stored(hub_project, events=len(commit.events), is_recovered=False)
            return Committed(accepted.result, is_recovered=False)

        return await self._writer.call(
            command, lane=Lane.JOURNAL, bytes_count=bytes_count, hub_project=hub_project
        )

    # --- outbox messages ---

    async def claim(
        self, caller: Caller, destination: str, *, visible_nanos: int, entries_max: int, bytes_max: int
    ) -> Claimed:
        """Claim available messages of a destination, at least one where there is one.

        Raises: what the writer raises.
        """
        hub_project, bounds = caller.hub_project, PageBounds(entries_max, bytes_max)

        def command(transaction: WriteTransaction, now_nanos: int) -> Claimed:
            journal = transaction.journal
            messages = self._claimed(
                journal,
                hub_project,
                destination=destination,
                now_nanos=now_nanos,
                visible_nanos=visible_nanos,
                bounds=bounds,
            )
            next_available_nanos = journal.next_available_nanos(hub_project, destination)
            return Claimed(messages, now_nanos, now_nanos + visible_nanos, next_available_nanos)

        return await self._writer.call(command, hub_project=caller.hub_project)

    async def acknowledge(self, caller: Caller, outbox_id: OutboxId, *, claim_id: str) -> OutboxAnswer:
        """Note that a claimed message was delivered.

        Raises: NotFound, and what the writer raises.
        """
        return await self._answered(
            caller,
            outbox_id,
            decide=lambda message, now_nanos: decide_acknowledge(message, now_nanos, claim_id=claim_id),
        )

    async def return_(
        self, caller: Caller, outbox_id: OutboxId, *, claim_id: str, delay_nanos: int
    ) -> OutboxAnswer:
        """Give a claimed message back, to be tried again after a delay; dead after its tries.

        Raises: NotFound, and what the writer raises.
        """

        def decide(message: OutboxMessage, now_nanos: int) -> Answered:
            return decide_return(
                message,
                now_nanos,
                claim_id=claim_id,
                delay_nanos=delay_nanos,
                tries_max=self._limits.outbox_tries_max,
            )

        return await self._answered(caller, outbox_id, decide=decide)

    async def release(self, caller: Caller, outbox_id: OutboxId) -> OutboxView:
        """Let a dead message be tried anew; any other stays as it is.

        Raises: NotFound, and what the writer raises.
        """

        def decide(message: OutboxMessage, now_nanos: int) -> Answered:
            return Answered(decide_release(message, now_nanos), OutboxOutcome.DONE)

        released = await self._answered(caller, outbox_id, decide=decide)
        return OutboxView(released.message, released.now_nanos)

    # --- within ---

    def _claimed(
        self,
        journal: JournalWrites,
        hub_project: HubProject,
        *,
        destination: str,
        now_nanos: int,
        visible_nanos: int,
        bounds: PageBounds,
    ) -> list[OutboxMessage]:
        """Claim what is available; what was tried too often is dead instead, and others are looked for."""
        for _ in range(CLAIM_ROUNDS_MAX):
            decided = [
                decide_claim(
                    message,
                    now_nanos,
                    claim_id=self._new_claim_id(),
                    visible_nanos=visible_nanos,
                    tries_max=self._limits.outbox_tries_max,
                )
                for message in journal.available_messages(
                    hub_project, destination, now_nanos=now_nanos, bounds=bounds
                )
            ]
            dead = [message for message in decided if message.is_dead]
            if not dead:
                journal.save_outbox_messages(hub_project, decided)
                return decided
            journal.save_outbox_messages(hub_project, dead)
        return []

    async def _answered(
        self, caller: Caller, outbox_id: OutboxId, *, decide: Callable[[OutboxMessage, int], Answered]
    ) -> OutboxAnswer:
        """Load a message, decide about it, and store what differs."""

        def command(transaction: WriteTransaction, now_nanos: int) -> OutboxAnswer:
            before = transaction.journal.outbox_message(caller.hub_project, outbox_id)
            if before is None:
                raise NotFound("outbox message", {"outboxId": outbox_id})
            after, outcome = decide(before, now_nanos)
            if after != before:
                transaction.journal.save_outbox_messages(caller.hub_project, [after])
            return OutboxAnswer(after, outcome, now_nanos)

        return await self._writer.call(command, hub_project=caller.hub_project)
