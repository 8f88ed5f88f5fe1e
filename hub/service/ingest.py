"""Ingest of a batch: load, decide, store, in one command of the writer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from hub.core.alert import Observation, observations_of_batch
from hub.core.errors import RuntimeDuplicated
from hub.core.identity_errors import PermissionDenied
from hub.core.ingest import (
    BatchDecision,
    PushBatch,
    advanced_head,
    begins_beyond,
    continues_plainly,
    decide_batch,
    decide_plainly,
    go_back,
    head_of_new_run,
    refuse_whole,
)
from hub.core.instance import InstanceStanding, decide_instance
from hub.core.limits import Limits
from hub.core.quota import check_active_runs, check_batch_quota
from hub.core.values import (
    AlertKey,
    AlertReason,
    AlertSample,
    Caller,
    ConflictReason,
    HubProject,
    InstanceId,
    ProjectId,
    RunHead,
    RuntimeId,
)
from hub.service.alert_book import AlertBook
from hub.service.instruments import Instruments
from hub.service.rates import ProjectGuesses
from hub.service.token_book import check_still_counts
from hub.service.traces import Span, Tracer
from hub.service.writer import AsyncWriter, Command, Lane
from hub.store.contract import WriteTransaction


@dataclass(frozen=True, slots=True)
class PushOutcome:
    """What became of a batch, durable; ``head`` is None where the run is not the caller's to know."""

    decision: BatchDecision
    head: RunHead | None


class Ingest:
    """The use case of a pushed batch."""

    def __init__(
        self,
        writer: AsyncWriter,
        *,
        alert_book: AlertBook,
        guesses: ProjectGuesses,
        limits: Limits,
        instruments: Instruments,
        wall_nanos: Callable[[], int],
        credential_nanos: Callable[[], int],
        tracer: Tracer | None = None,
    ) -> None:
        """Bind the writer; ``wall_nanos`` gives receive times, which decide nothing, ``credential_nanos``
        the time by which credentials end; without ``tracer`` nobody traces.
        """
        self._tracer = tracer
        self._writer = writer
        self._alert_book = alert_book
        self._guesses = guesses
        self._limits = limits
        self._instruments = instruments
        self._wall_nanos = wall_nanos
        self._credential_nanos = credential_nanos

    async def submit(self, caller: Caller, batch: PushBatch) -> "asyncio.Future[PushOutcome]":
        """Queue a batch, after a wait where the writer's queue is full; return its future.

        The future's result is a durable promise. It raises RuntimeDuplicated, PermissionDenied,
        RateLimited, QuotaExceeded, LimitReached, StorageUnavailable (the outcome is unknown) or HubStopping.
        """
        span = None if self._tracer is None else self._tracer.begin_batch(caller, batch)
        try:
            future = await self._writer.submit(
                self.command(caller, batch),
                lane=Lane.INGEST,
                bytes_count=batch.bytes_count,
                hub_project=caller.hub_project,
            )
        except BaseException as error:
            if span is not None:
                span.end({}, error=type(error).__name__)
            raise
        if span is not None:
            future.add_done_callback(partial(_end_span, span))
        return future

    def command(self, caller: Caller, batch: PushBatch) -> Command[PushOutcome]:
        """Return the command that ingests a batch."""

        def ingest(transaction: WriteTransaction, now_nanos: int) -> PushOutcome:
            check_still_counts(transaction, caller, credential_nanos=self._credential_nanos())
            if batch.instance_id is not None:
                check_instance(
                    transaction,
                    caller,
                    runtime_id=batch.runtime_id,
                    instance_id=batch.instance_id,
                    alert_book=self._alert_book,
                )
            owner = transaction.project_owner(batch.project_id)
            if owner != caller.hub_project:
                self._guesses.check(caller.hub_project, [owner])
            outcome = apply_batch(
                transaction,
                caller,
                batch=batch,
                owner=owner,
                limits=self._limits,
                now_nanos=now_nanos,
                receive_nanos=self._wall_nanos(),
            )
            self._observe(caller, batch, decision=outcome.decision, owner=owner)
            return outcome

        return ingest

    def _observe(
        self, caller: Caller, batch: PushBatch, *, decision: BatchDecision, owner: HubProject | None
    ) -> None:
        """Count what was decided, and what is to be alerted."""
        conflicts: dict[str, int] = {}
        if decision.conflicts or any(event.payload is None for event in decision.accepted):
            for conflict in decision.conflicts:
                conflicts[conflict.reason] = conflicts.get(conflict.reason, 0) + 1
            for observation in observations_of_batch(
                batch, decision, caller=caller, owner=owner, samples_max=self._limits.alert_samples_max
            ):
                self._alert_book.observe(observation)
        self._instruments.batch_ingested(
            caller.hub_project,
            accepted=len(decision.accepted),
            duplicates=decision.duplicate_count,
            conflicts=conflicts,
            bytes_count=batch.bytes_count,
        )


def _end_span(span: Span, future: "asyncio.Future[PushOutcome]") -> None:
    """End the span of a batch whose group was committed, or given up."""
    if future.cancelled():
        span.end({}, error="Cancelled")
        return
    error = future.exception()
    if error is not None:
        span.end({}, error=type(error).__name__)
        return
    decision = future.result().decision
    facts: dict[str, str | int] = {
        "synchub.accepted_count": len(decision.accepted),
        "synchub.duplicate_count": decision.duplicate_count,
        "synchub.conflict_count": len(decision.conflicts),
    }
    span.end(facts, error=None)


def apply_batch(
    transaction: WriteTransaction,
    caller: Caller,
    *,
    batch: PushBatch,
    owner: HubProject | None,
    limits: Limits,
    now_nanos: int,
    receive_nanos: int,
) -> PushOutcome:
    """Decide a batch by rows 4 to 11 and store what is accepted; ``owner`` has the project.

    Raises: PermissionDenied where the project is nobody's and the caller may not take it; QuotaExceeded
    or StorageFull where there is no room for what is accepted.
    """
    hub_project = caller.hub_project
    if owner is not None and owner != hub_project:
        return PushOutcome(refuse_whole(batch, ConflictReason.PROJECT_MISMATCH), None)
    stored_head = transaction.run_head(batch.project_id, batch.run_id)
    if stored_head is not None and stored_head.home_runtime_id != batch.runtime_id:
        return PushOutcome(refuse_whole(batch, ConflictReason.HOME_RUNTIME_MISMATCH), None)
    head = stored_head or head_of_new_run(batch.project_id, batch.run_id, home_runtime_id=batch.runtime_id)
    decision = _decide(transaction, head, batch=batch)
    if not decision.accepted and not decision.filled:
        return PushOutcome(decision, head)
    transaction.check_room()
    usage = transaction.usage(hub_project)
    check_batch_quota(usage, batch, decision=decision, limits=limits)
    if decision.head is not None:
        check_active_runs(usage, stored_head, after=decision.head, limits=limits)
    # Only an accepted event binds: the project to its hub project, the run to its runtime.
    if owner is None:
        _check_may_bind(transaction, caller, project_id=batch.project_id)
        transaction.bind_project(hub_project, batch.project_id, now_nanos=now_nanos)
    if stored_head is None:
        head = transaction.create_run(hub_project, head, receive_nanos=receive_nanos)
    transaction.store_events(hub_project, head, events=decision.accepted, receive_nanos=receive_nanos)
    if decision.filled:
        transaction.fill_events(head, decision.filled)
    after = decision.head
    if after is None:
        after = advanced_head(
            head, decision, stored_beyond=transaction.stored_hashes_after(head, head.cursor)
        )
        check_active_runs(usage, stored_head, after=after, limits=limits)
    elif after.run_key is None:
        after = replace(after, run_key=head.run_key)
    transaction.save_run_head(after, receive_nanos)
    return PushOutcome(decision, after)


def _check_may_bind(transaction: WriteTransaction, caller: Caller, *, project_id: ProjectId) -> None:
    """Return where the caller may take a project that nobody has.

    A certificate has no prefixes. Once there is more than one hub project, it takes nothing by itself.
    """
    if caller.is_certificate and transaction.tokens.has_other_hub_project(caller.hub_project):
        sentence = (
            f"project {project_id!r} is not bound; with more than one hub project a certificate binds none:"
            " ask an operator to bind it"
        )
        raise PermissionDenied(sentence, project_id)


def check_instance(
    transaction: WriteTransaction,
    caller: Caller,
    *,
    runtime_id: RuntimeId,
    instance_id: InstanceId,
    alert_book: AlertBook,
) -> InstanceStanding:
    """Return how an instance stands, CURRENT or NEW.

    Raises: RuntimeDuplicated for one that has a successor, which is alerted.
    """
    current = transaction.current_instance(caller.hub_project, runtime_id)
    if instance_id == current:
        return InstanceStanding.CURRENT
    standing = decide_instance(
        instance_id,
        current=current,
        was_current_before=transaction.was_instance(caller.hub_project, runtime_id, instance_id=instance_id),
    )
    if standing is InstanceStanding.PAST:
        key = AlertKey(caller.hub_project, AlertReason.RUNTIME_DUPLICATED, "", "", runtime_id)
        sample = AlertSample(0, 0, b"", b"", caller.peer, caller.credential_name)
        alert_book.observe(Observation(key, 1, (sample,)))
        raise RuntimeDuplicated(runtime_id, instance_id)
    return standing


def _decide(transaction: WriteTransaction, head: RunHead, *, batch: PushBatch) -> BatchDecision:
    """Decide a batch: at once where it plainly goes on, else by the rows one by one."""
    if continues_plainly(head, batch):
        return decide_plainly(head, batch)
    if begins_beyond(head, batch):
        return go_back(head)
    stored = {}
    if head.run_key is not None:
        stored = transaction.stored_contents(head, [event.sequence for event in batch.events])
    return decide_batch(head, batch, stored=stored)
