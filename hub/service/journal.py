"""The journal as use cases that change it: commits, and what becomes of outbox messages.

Each is one command for the writer, before ingest: check and write are in one transaction, and what is
told is durable, refusals too (see ``hub.service.leases``). Their time is the command's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hub.core.journal import Commit, CommitResult, OutboxId
from hub.core.limits import Limits
from hub.core.outbox import OutboxMessage, OutboxOutcome
from hub.core.values import Caller
from hub.service.writer import AsyncWriter


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

    def __init__(self, writer: AsyncWriter, *, limits: Limits, new_claim_id: Callable[[], str]) -> None:
        """Bind the writer; ``new_claim_id`` makes ids by chance, on any thread."""
        self._writer = writer
        self._limits = limits
        self._new_claim_id = new_claim_id

    async def commit(self, caller: Caller, commit: Commit, *, bytes_count: int) -> Committed:
        """Store all of a commit or nothing, once a message id; ``bytes_count`` is the request's size.

        Raises: IdempotencyConflict, StaleLease, RevisionConflict, InvalidRequest, LimitReached, and what
        the writer raises.
        """
        raise NotImplementedError

    async def claim(
        self, caller: Caller, destination: str, *, visible_nanos: int, entries_max: int, bytes_max: int
    ) -> Claimed:
        """Claim available messages of a destination, at least one where there is one.

        Raises: what the writer raises.
        """
        raise NotImplementedError

    async def acknowledge(self, caller: Caller, outbox_id: OutboxId, *, claim_id: str) -> OutboxAnswer:
        """Note that a claimed message was delivered.

        Raises: NotFound, and what the writer raises.
        """
        raise NotImplementedError

    async def return_(
        self, caller: Caller, outbox_id: OutboxId, *, claim_id: str, delay_nanos: int
    ) -> OutboxAnswer:
        """Give a claimed message back, to be tried again after a delay; dead after its tries.

        Raises: NotFound, and what the writer raises.
        """
        raise NotImplementedError

    async def release(self, caller: Caller, outbox_id: OutboxId) -> OutboxView:
        """Let a dead message be tried anew; any other stays as it is.

        Raises: NotFound, and what the writer raises.
        """
        raise NotImplementedError
