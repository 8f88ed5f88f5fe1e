"""Commits put into a store straight, each in a transaction of its own, under a lease that only they know."""

from hub.core.journal import Accepted, Commit, decide_commit
from hub.core.lease import decide_acquire
from hub.core.tenure import Claim, Floor, Resource, hash_of_nonce, unused_resource
from hub.core.values import HubProject, ResourceName
from hub.store.contract import Changes, WriteTransaction
from hub.store.store import SqlStore
from tests.unit.hub.journal_values import MINUTE, holder_of
from tests.unit.hub.stored_runs import WALL_NANOS

H, OTHER = HubProject("h"), HubProject("other")


class Writes:
    """One command after the other, each in a transaction of its own."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.changes = Changes()

    def __enter__(self) -> WriteTransaction:
        return self.store.writing.begin()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.changes = self.store.writing.commit(WALL_NANOS)
        else:
            self.store.writing.rollback()


def held(stream: str = "s", *, token: int = 1) -> Resource:
    """A resource with a lease of this token, as if it was loaded."""
    free = unused_resource(ResourceName(stream), Floor(token - 1, 0))
    claim = Claim(holder_of("a"), hash_of_nonce("nonce"), MINUTE)
    return decide_acquire(free, claim, now_nanos=WALL_NANOS, may_open=True, past_nonces_max=8).resource


def accept(
    transaction: WriteTransaction,
    tried: Commit,
    *,
    hub_project: HubProject = H,
    at: int = WALL_NANOS,
    resource: Resource | None = None,
) -> Accepted:
    journal = transaction.journal
    found = journal.found(hub_project, tried, resource=resource or held(tried.stream_id))
    accepted = decide_commit(tried, found, now_nanos=at)
    journal.save_commit(hub_project, tried, found=found, accepted=accepted)
    return accepted


def store_commit(
    store: SqlStore, tried: Commit, *, hub_project: HubProject = H, at: int = WALL_NANOS
) -> Changes:
    writes = Writes(store)
    with writes as transaction:
        accept(transaction, tried, hub_project=hub_project, at=at)
    return writes.changes
