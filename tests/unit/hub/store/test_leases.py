"""Resources, tenures and receipts as they are stored, and what the schema alone refuses."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import apsw
import pytest

from hub.core.credential import Token
from hub.core.errors import StartRefused
from hub.core.lease import decide_acquire
from hub.core.limits import Limits
from hub.core.maintenance import decide_begin
from hub.core.receipt import LeaseAnswer, Receipt, Repeat
from hub.core.selection import LeasePlace
from hub.core.tenure import (
    AbortReason,
    Claim,
    Floor,
    Holder,
    Resource,
    TenureEnd,
    TenureState,
    hash_of_nonce,
    unused_resource,
    with_tenure,
)
from hub.core.values import HolderId, HubProject, ResourceName, Role, RuntimeId, TokenId
from hub.store.lease_contract import LeaseWrites
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from tests.unit.hub.stored_runs import WALL_NANOS

H, OTHER = HubProject("h"), HubProject("other")
SECOND = 1_000_000_000
_nonces = count()


def claim(holder: str = "holder", *, ttl_nanos: int = 10 * SECOND) -> Claim:
    nonce_hash = hash_of_nonce(f"nonce-{next(_nonces)}")
    return Claim(
        Holder(RuntimeId("t"), HolderId(holder), "Näme"), nonce_hash, ttl_nanos, {"ключ": "", "b": "é"}
    )


class Writes:
    """One command after the other, each in a transaction of its own."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store

    def __enter__(self) -> LeaseWrites:
        self.leases = self.store.writing.begin().leases
        return self.leases

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.changes = self.store.writing.commit(WALL_NANOS)
        else:
            self.store.writing.rollback()


def acquire(store: SqlStore, name: str, *, at: int = WALL_NANOS, hub_project: HubProject = H) -> Resource:
    with Writes(store) as leases:
        before = leases.resource(hub_project, ResourceName(name))
        granted = decide_acquire(before, claim(), now_nanos=at, may_open=True, past_nonces_max=8)
        leases.save_resource(hub_project, before, after=granted.resource)
    return granted.resource


def ended(resource: Resource, *, at: int) -> Resource:
    assert resource.lease is not None
    return with_tenure(resource, replace(resource.lease, end=TenureEnd(TenureState.RELEASED, at)))


def end(store: SqlStore, resource: Resource, *, at: int) -> Resource:
    after = ended(resource, at=at)
    with Writes(store) as leases:
        leases.save_resource(H, resource, after=after)
    return after


def read(store: SqlStore, name: str, hub_project: HubProject = H) -> Resource:
    with store.reading() as transaction:
        return transaction.leases.resource(hub_project, ResourceName(name))


def test_a_resource_is_read_as_it_was_stored(store: SqlStore) -> None:
    resource = acquire(store, "a")
    with Writes(store) as leases:
        begun = decide_begin(
            resource, claim("operator"), now_nanos=WALL_NANOS + 1, past_nonces_max=8
        ).resource
        assert begun.lease is not None
        aborted = with_tenure(begun, replace(begun.lease, abort_reason=AbortReason.EXTERNAL, nonce_hash=None))
        leases.save_resource(H, resource, after=aborted)
        assert leases.resource(H, ResourceName("a")) == aborted
    assert read(store, "a") == aborted
    assert len(aborted.past_nonce_hashes) == 1


def test_a_resource_of_which_nothing_is_stored_reads_as_the_floor(store: SqlStore) -> None:
    assert read(store, "a") == unused_resource(ResourceName("a"), Floor(0, 0))
    with Writes(store) as leases:
        leases.raise_floors(77)
    for hub_project in (H, OTHER):
        assert read(store, "a", hub_project) == unused_resource(ResourceName("a"), Floor(77, 77))
    assert acquire(store, "a").fencing_token == 78


def test_hub_projects_do_not_see_each_others_resources(store: SqlStore) -> None:
    acquire(store, "a")
    assert read(store, "a", OTHER).lease is None
    assert acquire(store, "a", hub_project=OTHER).fencing_token == 1
    with store.reading() as transaction:
        (tenure,) = transaction.leases.tenures(OTHER, live_at_nanos=None, after=None, entries_max=10)
        assert tenure == read(store, "a", OTHER).lease
        assert transaction.leases.change_number(OTHER) == 1


def test_what_is_the_same_is_not_written(store: SqlStore) -> None:
    resource = acquire(store, "a")
    writes = Writes(store)
    with writes as leases:
        leases.save_resource(H, resource, after=resource)
    assert writes.changes.resources == {}
    with store.reading() as transaction:
        assert transaction.leases.change_number(H) == 1


def test_an_undone_command_leaves_no_trace(store: SqlStore) -> None:
    session = store.writing
    leases = session.begin().leases
    session.set_savepoint()
    before = leases.resource(H, ResourceName("a"))
    leases.save_resource(
        H,
        before,
        after=decide_acquire(before, claim(), now_nanos=1, may_open=True, past_nonces_max=8).resource,
    )
    session.undo_to_savepoint()
    assert session.commit(WALL_NANOS).resources == {}
    assert read(store, "a").lease is None


def test_what_an_undone_command_changed_is_not_seen_by_the_next(store: SqlStore) -> None:
    held = acquire(store, "a")
    session = store.writing
    leases = session.begin().leases
    session.set_savepoint()
    assert leases.resource(H, held.name) == held
    leases.save_resource(H, held, after=ended(held, at=WALL_NANOS + 1))
    session.undo_to_savepoint()
    session.set_savepoint()
    assert leases.resource(H, held.name) == held
    other = leases.resource(H, ResourceName("b"))
    granted = decide_acquire(other, claim(), now_nanos=1, may_open=True, past_nonces_max=8)
    leases.save_resource(H, other, after=granted.resource)
    session.release_savepoint()
    session.commit(WALL_NANOS)
    with store.reading() as transaction:
        changes = transaction.leases.tenure_changes(H, after_change_number=0, entries_max=10)
    assert changes == ([held.lease, granted.tenure], 2)


def test_changes_are_counted_on_after_a_restart(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        with opened_engine(tmp_path / "counted.db", limits=Limits()) as engine:
            store = SqlStore(engine, limits=Limits(), wall_nanos=WALL_NANOS)
            acquire(store, f"resource-{number}")
            with store.reading() as transaction:
                assert transaction.leases.change_number(H) == number
            store.close()


def test_after_a_group_that_was_given_up_the_writer_sees_what_is_stored(store: SqlStore) -> None:
    held = acquire(store, "a")
    store.writing.begin().leases.save_resource(H, held, after=ended(held, at=WALL_NANOS + 1))
    store.writing.rollback()
    with Writes(store) as leases:
        assert leases.resource(H, held.name) == held == read(store, "a")
    end(store, held, at=WALL_NANOS + 1)
    with store.reading() as transaction:
        assert transaction.leases.change_number(H) == 2


def test_tenures_are_listed_in_the_order_of_the_bytes_of_their_resources(store: SqlStore) -> None:
    names = ["é", "a", "B", "a ", "a%", "\N{SNOWMAN}"]
    for name in names:
        acquire(store, name)
    maintained = read(store, "a")
    with Writes(store) as leases:
        begun = decide_begin(maintained, claim(), now_nanos=WALL_NANOS, past_nonces_max=8).resource
        leases.save_resource(H, maintained, after=begun)
    expected = sorted(
        [(name, False) for name in names] + [("a", True)], key=lambda place: (place[0].encode(), place[1])
    )
    found: list[tuple[str, bool]] = []
    after: LeasePlace | None = None
    with store.reading() as transaction:
        while page := transaction.leases.tenures(H, live_at_nanos=None, after=after, entries_max=2):
            found += [(tenure.resource, tenure.is_maintenance) for tenure in page]
            after = LeasePlace(page[-1].resource, page[-1].is_maintenance)
    assert found == expected


def test_only_live_tenures_are_listed_where_only_they_are_wanted(store: SqlStore) -> None:
    end(store, acquire(store, "released"), at=WALL_NANOS + 1)
    acquire(store, "expired", at=WALL_NANOS - 10 * SECOND)
    acquire(store, "live")
    with store.reading() as transaction:
        live = transaction.leases.tenures(H, live_at_nanos=WALL_NANOS, after=None, entries_max=10)
    assert [tenure.resource for tenure in live] == ["live"]


def test_changes_give_each_tenure_once_in_its_newest_state(store: SqlStore) -> None:
    first = acquire(store, "a")
    acquire(store, "b")
    ended = end(store, first, at=WALL_NANOS + 1)
    with store.reading() as transaction:
        changes = transaction.leases.tenure_changes(H, after_change_number=0, entries_max=10)
        assert changes.tenures == [read(store, "b").lease, ended.lease]
        assert changes.change_number == 3
        rest = transaction.leases.tenure_changes(H, after_change_number=2, entries_max=10)
        assert rest.tenures == [ended.lease]
        nothing = transaction.leases.tenure_changes(H, after_change_number=3, entries_max=10)
        assert nothing == ([], 3)


def test_an_expiry_is_overdue_until_it_is_noted(store: SqlStore) -> None:
    acquire(store, "later", at=WALL_NANOS + 5)
    resource = acquire(store, "a", at=WALL_NANOS)
    expire_nanos = WALL_NANOS + 10 * SECOND
    with Writes(store) as leases:
        assert leases.overdue_resources(expire_nanos - 1, entries_max=10) == []
        assert leases.overdue_resources(expire_nanos, entries_max=10) == [(H, "a")]
        assert leases.overdue_resources(expire_nanos + 5, entries_max=10) == [(H, "a"), (H, "later")]
        assert leases.overdue_resources(expire_nanos + 5, entries_max=1) == [(H, "a")]
    with store.reading() as transaction:
        assert transaction.leases.next_expiry_nanos() == expire_nanos
    end(store, resource, at=expire_nanos)
    with store.reading() as transaction:
        assert transaction.leases.next_expiry_nanos() == expire_nanos + 5


def test_a_purge_drops_what_ended_long_ago_and_raises_the_floors(store: SqlStore) -> None:
    for _ in range(3):
        resource = acquire(store, "a", at=WALL_NANOS)
        end(store, resource, at=WALL_NANOS + 1)
    kept = end(store, acquire(store, "kept"), at=WALL_NANOS + 2)
    live = acquire(store, "live")
    with Writes(store) as leases:
        assert leases.purge_resources(WALL_NANOS + 1, entries_max=10) == 0
        assert leases.purge_resources(WALL_NANOS + 2, entries_max=10) == 1
    assert read(store, "a") == unused_resource(ResourceName("a"), Floor(3, 0))
    assert read(store, "kept") == replace(kept, floor=Floor(3, 0))
    assert read(store, "live") == replace(live, floor=Floor(3, 0))
    with Writes(store) as leases:
        for name in map(ResourceName, ("a", "kept", "live", "new")):
            assert leases.resource(H, name) == read(store, name)
    assert acquire(store, "a").fencing_token == 4
    assert acquire(store, "new").fencing_token == 4


def test_a_resource_with_a_tenure_that_goes_on_is_not_purged(store: SqlStore) -> None:
    resource = acquire(store, "a")
    with Writes(store) as leases:
        begun = decide_begin(resource, claim(), now_nanos=WALL_NANOS + 1, past_nonces_max=8).resource
        leases.save_resource(H, resource, after=begun)
    with Writes(store) as leases:
        assert leases.purge_resources(WALL_NANOS + 2, entries_max=10) == 0
    assert read(store, "a") == begun


def test_floors_that_were_raised_are_seen_by_the_writer(store: SqlStore) -> None:
    acquire(store, "a")
    with Writes(store) as leases:
        leases.raise_floors(7)
        assert leases.resource(H, ResourceName("a")).floor == Floor(7, 7)
    assert acquire(store, "a").fencing_token == 8


def receipt(number: int) -> Receipt:
    tenure = unused_resource(ResourceName("a"), Floor())
    granted = decide_acquire(tenure, claim(), now_nanos=number, may_open=True, past_nonces_max=8)
    answer = LeaseAnswer(replace(granted.tenure, nonce_hash=None), is_renewed=True, waited_nanos=number)
    return Receipt(Repeat(f"request-{number}", "AcquireLease", hash_of_nonce(str(number))), answer)


def test_receipts_are_kept_a_caller_and_the_oldest_makes_room(store: SqlStore) -> None:
    receipts = [receipt(number) for number in range(1, 5)]
    with Writes(store) as leases:
        for each in receipts:
            leases.save_receipt(H, "caller", receipt=each, receipts_max=3, now_nanos=1)
    with Writes(store) as leases:
        found = [leases.receipt(H, "caller", request_id=f"request-{number}") for number in range(1, 5)]
        assert leases.receipt(H, "another", request_id="request-2") is None
        assert leases.receipt(OTHER, "caller", request_id="request-2") is None
    assert found == [None, *receipts[1:]]


def test_a_receipt_holds_nothing_of_the_nonce(store: SqlStore, tmp_path: Path) -> None:
    nonce_hash = hash_of_nonce("secret")
    kept = receipt(1)
    tenure = replace(kept.answer.tenure, nonce_hash=nonce_hash)
    with Writes(store) as leases:
        leases.save_receipt(
            H,
            "",
            receipt=replace(kept, answer=kept.answer._replace(tenure=tenure)),
            receipts_max=9,
            now_nanos=1,
        )
        assert leases.receipt(H, "", request_id="request-1") == kept
    answers = list(apsw.Connection(str(tmp_path / "hub.db")).execute("SELECT answer FROM receipt"))
    assert nonce_hash.hex() not in str(answers)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE resource SET fencing_token = fencing_token - 1",
        "UPDATE resource SET epoch = epoch - 1",
        "UPDATE resource SET maintenance_token = maintenance_token - 1",
        "UPDATE hub_project SET token_floor = token_floor - 1",
        "UPDATE hub_project SET epoch_floor = epoch_floor - 1",
        "DELETE FROM resource",
        "INSERT INTO resource SELECT hub_project_key, 'b', token_floor, 9, 0, x'' FROM hub_project",
    ],
)
def test_the_schema_alone_refuses_a_token_that_goes_back(store: SqlStore, tmp_path: Path, sql: str) -> None:
    with Writes(store) as leases:
        leases.raise_floors(5)
    resource = acquire(store, "a")
    with Writes(store) as leases:
        begun = decide_begin(resource, claim(), now_nanos=WALL_NANOS, past_nonces_max=8).resource
        leases.save_resource(H, resource, after=begun)
    connection = apsw.Connection(str(tmp_path / "hub.db"))
    with pytest.raises(apsw.ConstraintError):
        connection.execute(sql)
    assert read(store, "a") == begun


def test_tokens_of_a_new_store_in_place_of_a_lost_one_begin_above_any_given_before(tmp_path: Path) -> None:
    with opened_engine(tmp_path / "new.db", limits=Limits()) as engine:
        store = SqlStore(engine, limits=Limits(), wall_nanos=WALL_NANOS, is_token_floor_now=True)
        assert acquire(store, "a").fencing_token == WALL_NANOS // 1_000 + 1
        store.close()
        with pytest.raises(StartRefused, match="in use"):
            SqlStore(engine, limits=Limits(), wall_nanos=WALL_NANOS, is_token_floor_now=True)


def test_the_first_token_of_a_caller_is_made_before_the_floor_of_fencing_tokens_is_raised(
    tmp_path: Path,
) -> None:
    with opened_engine(tmp_path / "new.db", limits=Limits()) as engine:
        store = SqlStore(engine, limits=Limits(), wall_nanos=WALL_NANOS)
        store.writing.begin().tokens.create(
            Token(TokenId("0" * 20), b"h" * 32, H, "first", Role.ADMIN, None, (), WALL_NANOS, None, None)
        )
        store.writing.commit(WALL_NANOS)
        store.close()

        store = SqlStore(engine, limits=Limits(), wall_nanos=WALL_NANOS, is_token_floor_now=True)
        assert acquire(store, "a").fencing_token == WALL_NANOS // 1_000 + 1
        assert acquire(store, "a", hub_project=OTHER).fencing_token == WALL_NANOS // 1_000 + 1
        store.close()
