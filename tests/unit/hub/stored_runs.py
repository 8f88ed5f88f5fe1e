"""A short way to put runs into a real store, without the rules that the hub holds over them."""

from collections.abc import Sequence

from hub.core.values import EventContent, HubProject, ProjectId, RunHead, RunId, RuntimeId
from hub.store.contract import Changes
from hub.store.store import SqlStore
from synchub.contract import chain_hash_after, chain_hash_at_start, content_hash

WALL_NANOS = 1_700_000_000_000_000_000


class StoreWriter:
    """Writes runs as the writer would, a transaction a call."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store

    def push(
        self,
        hub_project: str,
        project_id: str,
        run_id: str,
        *,
        events: Sequence[EventContent],
        runtime_id: str = "runtime-1",
    ) -> Changes:
        session = self.store.writing
        transaction = session.begin()
        project, run, tenant = ProjectId(project_id), RunId(run_id), HubProject(hub_project)
        if transaction.project_owner(project) is None:
            transaction.bind_project(tenant, project, now_nanos=WALL_NANOS)
        head = transaction.run_head(project, run)
        if head is None:
            start = chain_hash_at_start(project_id, run_id)
            new = RunHead(None, project, run, RuntimeId(runtime_id), 0, start, 0, 0, None)
            head = transaction.create_run(tenant, new, receive_nanos=WALL_NANOS)
        transaction.store_events(tenant, head, events=events, receive_nanos=WALL_NANOS)
        transaction.save_run_head(advanced(head, events), WALL_NANOS)
        return session.commit(WALL_NANOS)


def advanced(head: RunHead, events: Sequence[EventContent]) -> RunHead:
    """The head after these events; the cursor moves only over what follows it at once."""
    cursor, chain_hash = head.cursor, head.chain_hash
    for event in events:
        if event.sequence == cursor + 1:
            cursor, chain_hash = event.sequence, chain_hash_after(chain_hash, [event.content_hash])
    finals = [event.sequence for event in events if event.is_final]
    return RunHead(
        run_key=head.run_key,
        project_id=head.project_id,
        run_id=head.run_id,
        home_runtime_id=head.home_runtime_id,
        cursor=cursor,
        chain_hash=chain_hash,
        highest_sequence=max(head.highest_sequence, *(event.sequence for event in events)),
        event_count=head.event_count + len(events),
        final_sequence=finals[0] if finals else head.final_sequence,
    )


def event(
    sequence: int, payload: bytes | None = b"payload", *, event_type: str = "line", is_final: bool = False
) -> EventContent:
    digest = content_hash(event_type, None, is_final=is_final, attributes={}, payload=payload or b"")
    return EventContent(sequence, event_type, None, None, is_final, payload, digest)
