"""Reconcile: a runtime that connects hears for each of its runs who is behind."""

from collections.abc import Sequence
from dataclasses import dataclass

from hub.core.alert import Observation
from hub.core.ingest import head_of_new_run
from hub.core.instance import InstanceStanding
from hub.core.limits import Limits
from hub.core.reconcile import (
    ReconciledRun,
    ReconcileState,
    RuntimeRun,
    decide_reconcile,
    is_history_lost,
)
from hub.core.values import (
    AlertKey,
    AlertReason,
    AlertSample,
    Caller,
    HubGeneration,
    InstanceId,
    RunHead,
    RuntimeId,
)
from hub.service.alert_book import AlertBook
from hub.service.ingest import check_instance
from hub.service.rates import ProjectGuesses
from hub.service.writer import PART_BYTES, AsyncWriter
from hub.store.contract import WriteTransaction
from synchub.contract import chain_hash_after, chain_hash_at_start


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """What a runtime has, valid in itself."""

    runtime_id: RuntimeId
    instance_id: InstanceId
    known_hub_generation: str
    runs: Sequence[RuntimeRun]


class Reconcile:
    """The use case of a runtime that connects."""

    def __init__(
        self, writer: AsyncWriter, *, alert_book: AlertBook, guesses: ProjectGuesses, limits: Limits
    ) -> None:
        """Bind the writer: the instance becomes current, and the heads are read, in its order."""
        self._writer = writer
        self._alert_book = alert_book
        self._guesses = guesses
        self._limits = limits

    async def reconcile(
        self, caller: Caller, request: ReconcileRequest
    ) -> tuple[HubGeneration, list[ReconciledRun]]:
        """Make the instance the runtime's current one, durably, and say who is behind.

        Raises: RuntimeDuplicated for an instance that has a successor; RateLimited where the hub project
        was told too often that a project is somebody else's.
        """

        def command(
            transaction: WriteTransaction, now_nanos: int
        ) -> tuple[HubGeneration, list[ReconciledRun]]:
            standing = check_instance(
                transaction,
                caller,
                runtime_id=request.runtime_id,
                instance_id=request.instance_id,
                alert_book=self._alert_book,
            )
            if standing is InstanceStanding.NEW:
                transaction.begin_instance(
                    caller.hub_project,
                    request.runtime_id,
                    instance_id=request.instance_id,
                    now_nanos=now_nanos,
                )
            project_ids = {run.project_id for run in request.runs if caller.covers(run.project_id)}
            self._guesses.check(caller.hub_project, map(transaction.project_owner, project_ids))
            comparison = _Comparison(transaction, caller, request, self._limits.reconcile_fold_events_max)
            runs = [comparison.reconciled(run) for run in request.runs]
            for observation in comparison.observations:
                self._alert_book.observe(observation)
            return transaction.hub_generation, runs

        return await self._writer.call(
            command, bytes_count=PART_BYTES * len(request.runs), hub_project=caller.hub_project
        )


class _Comparison:
    """Compares runs one by one, with a bound on the content hashes read for all of them."""

    def __init__(
        self,
        transaction: WriteTransaction,
        caller: Caller,
        request: ReconcileRequest,
        fold_events_max: int,
    ) -> None:
        self._transaction = transaction
        self._caller = caller
        self._request = request
        self._fold_events_left = fold_events_max
        self.observations: list[Observation] = []

    def reconciled(self, run: RuntimeRun) -> ReconciledRun:
        """Return the hub's view of a run."""
        if not self._caller.covers(run.project_id):
            self._observe_not_covered(run)
            return _told_nothing(run, ReconcileState.PERMISSION_DENIED)
        owner = self._transaction.project_owner(run.project_id)
        if owner is not None and owner != self._caller.hub_project:
            return _told_nothing(run, ReconcileState.PROJECT_MISMATCH)
        head = self._transaction.run_head(run.project_id, run.run_id)
        if head is None:
            runtime_id = self._request.runtime_id
            head = head_of_new_run(run.project_id, run.run_id, home_runtime_id=runtime_id)
        if head.home_runtime_id != self._request.runtime_id:
            return _told_nothing(run, ReconcileState.HOME_RUNTIME_MISMATCH)
        self._observe_loss(head, run)
        state = decide_reconcile(
            head,
            run,
            chain_hash_at_sequence=self._chain_hash_at(head, run.sequence),
            stored_above_count=self._stored_above_count(head, run),
        )
        return ReconciledRun(
            run.project_id, run.run_id, head.cursor, head.chain_hash, head.highest_sequence, state
        )

    def _chain_hash_at(self, head: RunHead, sequence: int) -> bytes | None:
        """Return the hub's chain hash at a sequence, None above the cursor or past the bound."""
        if sequence == head.cursor:
            return head.chain_hash
        if sequence > head.cursor or sequence > self._fold_events_left:
            return None
        self._fold_events_left -= sequence
        chain_hash = chain_hash_at_start(head.project_id, head.run_id)
        if sequence:
            for stored_sequence, content_hash in self._transaction.stored_hashes_after(head, 0):
                chain_hash = chain_hash_after(chain_hash, (content_hash,))
                if stored_sequence == sequence:
                    break
        return chain_hash

    def _stored_above_count(self, head: RunHead, run: RuntimeRun) -> int:
        """Return how many events lie above both the cursor and the runtime's last sequence."""
        above = max(head.cursor, run.sequence)
        if head.highest_sequence <= above:
            return 0
        return self._transaction.stored_count_after(head, above)

    def _observe_not_covered(self, run: RuntimeRun) -> None:
        """Alert a run of a project that the credential is not for."""
        caller = self._caller
        named = (run.project_id, run.run_id, self._request.runtime_id)
        key = AlertKey(caller.hub_project, AlertReason.IDENTITY_MISMATCH, *named)
        sample = AlertSample(0, 0, b"", b"", caller.peer, caller.credential_name)
        self.observations.append(Observation(key, 1, (sample,)))

    def _observe_loss(self, head: RunHead, run: RuntimeRun) -> None:
        """Alert where the hub has less than it acknowledged in this life of its store."""
        if not is_history_lost(
            head,
            run,
            known_hub_generation=self._request.known_hub_generation,
            hub_generation=self._transaction.hub_generation,
        ):
            return
        caller = self._caller
        key = AlertKey(
            caller.hub_project,
            AlertReason.HISTORY_LOST,
            run.project_id,
            run.run_id,
            self._request.runtime_id,
        )
        sample = AlertSample(
            head.cursor + 1, run.acknowledged_sequence, b"", b"", caller.peer, caller.credential_name
        )
        self.observations.append(Observation(key, 1, (sample,)))


def _told_nothing(run: RuntimeRun, state: ReconcileState) -> ReconciledRun:
    """Return a state with nothing else, as a stranger may hear it."""
    return ReconciledRun(run.project_id, run.run_id, 0, b"", 0, state)
