"""Outbox messages as they are stored: their order, their states, and who waits behind whom."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hub.core.journal import MessageId, NewOutboxMessage, OutboxId, StreamId
from hub.core.journal_selection import OutboxFilter, OutboxPlace
from hub.core.outbox import OutboxMessage, OutboxState
from hub.core.selection import PageBounds
from hub.core.values import HubProject
from hub.store.journal_rows import outbox_message_bytes
from hub.store.store import SqlStore
from tests.unit.hub.journal_values import commit, event, message
from tests.unit.hub.stored_journal import OTHER, H, Writes, store_commit
from tests.unit.hub.stored_runs import WALL_NANOS

NOW = WALL_NANOS
EVERYTHING = PageBounds(10_000, 1 << 30)


def put(store: SqlStore, *messages: NewOutboxMessage, name: str = "m1") -> None:
    store_commit(store, commit(name, messages=messages))


def save(store: SqlStore, *messages: OutboxMessage) -> None:
    with Writes(store) as transaction:
        transaction.journal.save_outbox_messages(H, messages)


def stored(store: SqlStore, name: str) -> OutboxMessage:
    with Writes(store) as transaction:
        found = transaction.journal.outbox_message(H, OutboxId(name))
    assert found is not None
    return found


def available(
    store: SqlStore, at: int = NOW, *, destination: str = "d", bounds: PageBounds = EVERYTHING
) -> list[str]:
    with Writes(store) as transaction:
        found = transaction.journal.available_messages(H, destination, now_nanos=at, bounds=bounds)
    return [each.outbox_id for each in found]


def listed(
    store: SqlStore,
    state: OutboxState | None = None,
    *,
    at: int = NOW,
    destination: str | None = None,
    after: OutboxPlace | None = None,
    bounds: PageBounds = EVERYTHING,
    hub_project: HubProject = H,
) -> tuple[Sequence[str], OutboxPlace | None]:
    with store.reading() as reading:
        found = reading.journal.outbox_messages(
            hub_project, OutboxFilter(destination, state), now_nanos=at, after=after, bounds=bounds
        )
    return [each.outbox_id for each in found.messages], found.next_place


def test_a_message_is_read_as_it_was_committed(store: SqlStore) -> None:
    given = message("é", b"\x00\xff", event="e1", destination="кому", key="k", available=NOW - 9)
    store_commit(store, commit("m", events=[event("e1")], messages=[given, message("plain", b"")]))
    first = OutboxMessage(
        *(OutboxId("é"), "e1", "кому", "k", b"\x00\xff", NOW - 9, NOW),
        stream_id=StreamId("s"),
        message_id=MessageId("m"),
    )
    plain = OutboxMessage(OutboxId("plain"), "", "d", "", b"", NOW, NOW, StreamId("s"), MessageId("m"))
    with store.reading() as reading:
        found = reading.journal.outbox_messages(
            H, OutboxFilter(), now_nanos=NOW, after=None, bounds=EVERYTHING
        )
    assert found.messages == [first, plain]
    assert (stored(store, "é"), stored(store, "plain")) == (first, plain)


def test_every_state_of_a_message_is_read_as_it_was_saved(store: SqlStore) -> None:
    put(store, message("o"))
    states = [
        replace(stored(store, "o"), attempt_count=3, claim_id="claim", available_nanos=NOW + 5),
        replace(stored(store, "o"), attempt_count=10, is_dead=True, available_nanos=NOW + 6),
        replace(stored(store, "o"), attempt_count=1, deliver_nanos=NOW + 7, available_nanos=NOW + 8),
    ]
    for state in states:
        save(store, state)
        assert stored(store, "o") == state


def test_messages_come_by_availability_then_by_creation(store: SqlStore) -> None:
    put(store, message("z", available=NOW - 2), message("y"), message("x", available=NOW - 1), name="m1")
    put(store, message("b"), message("a"), message("later", available=NOW + 1), name="m2")
    put(store, message("ancient", available=-(2**63)), message("never", available=2**63 - 1), name="m3")
    in_order = ["ancient", "z", "x", "y", "b", "a"]
    assert available(store) == in_order
    assert available(store, NOW + 1) == [*in_order, "later"]
    assert listed(store)[0] == [*in_order, "later", "never"]


def test_destinations_and_hub_projects_are_apart(store: SqlStore) -> None:
    put(
        store, message("o1", destination="d"), message("o2", destination="D"), message("o3", destination="d ")
    )
    store_commit(store, commit(messages=[message("o1")]), hub_project=OTHER)
    assert [available(store, destination=each) for each in ("d", "D", "d ", "e")] == [
        ["o1"], ["o2"], ["o3"], [],
    ]  # fmt: skip
    assert listed(store, destination="D")[0] == ["o2"]
    assert listed(store, hub_project=OTHER)[0] == ["o1"]
    save(store, replace(stored(store, "o1"), deliver_nanos=NOW))
    assert listed(store, hub_project=OTHER)[0] == ["o1"]
    assert listed(store, hub_project=HubProject("nobody"))[0] == []


def test_what_is_available_keeps_the_bounds_and_is_at_least_one(store: SqlStore) -> None:
    put(store, message("o1", b"x" * 10), message("o2", b"x" * 20), message("o3", b""))
    first, second = (outbox_message_bytes(stored(store, name)) for name in ("o1", "o2"))
    for entries_max, bytes_max, count in (
        (1, 1 << 20, 1),
        (3, 1 << 20, 3),
        (9, first + second, 2),
        (9, first + second - 1, 1),
        (9, 1, 1),
    ):
        bounds = PageBounds(entries_max, bytes_max)
        names = ["o1", "o2", "o3"][:count]
        assert available(store, bounds=bounds) == names
        assert listed(store, bounds=bounds)[0] == names


def in_every_state(store: SqlStore) -> None:
    put(
        store,
        message("waiting"),
        message("delayed", available=NOW + 50),
        message("claimed"),
        message("claim over"),
        message("dead"),
        message("delivered"),
        message("first", key="k"),
        message("behind", key="k"),
    )
    save(
        store,
        replace(stored(store, "claimed"), attempt_count=1, claim_id="c1", available_nanos=NOW + 30),
        replace(stored(store, "claim over"), attempt_count=1, claim_id="c2", available_nanos=NOW - 1),
        replace(stored(store, "dead"), attempt_count=10, is_dead=True),
        replace(stored(store, "delivered"), deliver_nanos=NOW),
    )


BY_STATE = {
    None: ["claim over", "waiting", "dead", "first", "behind", "claimed", "delayed"],
    OutboxState.PENDING: ["claim over", "waiting", "first", "behind", "delayed"],
    OutboxState.CLAIMED: ["claimed"],
    OutboxState.DEAD: ["dead"],
    OutboxState.DELIVERED: ["delivered"],
}


@pytest.mark.parametrize("destination", [None, "d"])
@pytest.mark.parametrize("state", BY_STATE)
def test_messages_are_listed_by_where_they_stand(
    store: SqlStore, state: OutboxState | None, destination: str | None
) -> None:
    in_every_state(store)
    assert listed(store, state, destination=destination) == (BY_STATE[state], None)
    paged: list[str] = []
    place: OutboxPlace | None = None
    while True:
        page, place = listed(
            store, state, destination=destination, after=place, bounds=PageBounds(1, 1 << 20)
        )
        paged += page
        if place is None:
            break
    assert paged == BY_STATE[state]


def test_what_a_claim_hides_depends_on_the_moment(store: SqlStore) -> None:
    in_every_state(store)
    assert listed(store, OutboxState.CLAIMED, at=NOW + 29)[0] == ["claimed"]
    assert listed(store, OutboxState.CLAIMED, at=NOW + 30)[0] == []
    assert "claimed" in listed(store, OutboxState.PENDING, at=NOW + 30)[0]


def test_a_full_page_that_is_the_last_one_says_so(store: SqlStore) -> None:
    put(store, message("o1"), message("o2"))
    assert listed(store, bounds=PageBounds(2, 1 << 20)) == (["o1", "o2"], None)
    assert listed(store, bounds=PageBounds(1, 1 << 20)) == (["o1"], OutboxPlace(NOW, 1))
    assert listed(store, after=OutboxPlace(NOW, 2)) == ([], None)


# --- ordering keys -----------------------------------------------------------------------------------


def test_of_a_destination_and_ordering_key_only_the_first_is_available(store: SqlStore) -> None:
    put(
        store,
        message("k1", key="k"),
        message("k2", key="k", available=NOW - 9),
        message("l1", key="l"),
        message("free"),
        message("other", key="k", destination="D"),
        name="m1",
    )
    put(store, message("k3", key="k"), message("l2", key="l"), message("K1", key="K"), name="m2")
    assert available(store) == ["k1", "l1", "free", "K1"]
    assert available(store, destination="D") == ["other"]


@pytest.mark.parametrize(
    "held_back_by",
    [
        {"claim_id": "c", "attempt_count": 1, "available_nanos": NOW + 30},
        {"available_nanos": NOW + 30},
        {"is_dead": True},
    ],
    ids=["claimed", "delayed", "dead"],
)
def test_whoever_is_first_of_a_key_holds_back_the_others_until_it_is_delivered(
    store: SqlStore, held_back_by: dict[str, object]
) -> None:
    put(store, message("k1", key="k"), message("k2", key="k"), name="m1")
    save(store, replace(stored(store, "k1"), **held_back_by))  # type: ignore[arg-type]  # by their names
    put(store, message("k3", key="k"), name="m2")
    assert available(store) == []
    save(store, replace(stored(store, "k1"), deliver_nanos=NOW, is_dead=False, claim_id=""))
    assert available(store) == ["k2"]
    save(store, replace(stored(store, "k2"), deliver_nanos=NOW))
    assert available(store) == ["k3"]
    save(store, replace(stored(store, "k3"), deliver_nanos=NOW))
    put(store, message("k4", key="k"), message("k5", key="k"), name="m3")
    assert available(store) == ["k4"]


def test_a_delayed_first_message_holds_back_those_of_its_key_alone(store: SqlStore) -> None:
    put(store, message("k1", key="k", available=NOW + 5), message("k2", key="k"), message("free"))
    assert available(store) == ["free"]
    assert available(store, NOW + 5) == ["free", "k1"]


def test_messages_delivered_together_let_the_next_of_each_key_pass(store: SqlStore) -> None:
    put(store, *(message(f"{key}{n}", key=key) for key in "kl" for n in (1, 2)))
    save(store, *(replace(stored(store, name), deliver_nanos=NOW) for name in ("k1", "l1")))
    assert available(store) == ["k2", "l2"]


# --- the next one ------------------------------------------------------------------------------------


def test_the_next_available_moment_is_of_what_time_alone_makes_available(store: SqlStore) -> None:
    def next_available(destination: str = "d") -> int | None:
        with Writes(store) as transaction:
            return transaction.journal.next_available_nanos(H, destination)

    assert next_available() is None
    put(store, message("dead"), message("k1", key="k", available=NOW + 9), message("k2", key="k"))
    save(store, replace(stored(store, "dead"), is_dead=True))
    assert next_available() == NOW + 9
    save(store, replace(stored(store, "k1"), claim_id="c", attempt_count=1, available_nanos=NOW + 40))
    assert next_available() == NOW + 40
    save(store, replace(stored(store, "k1"), claim_id="", deliver_nanos=NOW))
    assert next_available() == NOW
    assert next_available("elsewhere") is None
