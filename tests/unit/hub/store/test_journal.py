"""The journal as it is stored and read, and its ranges and bounds at their edges."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from hub.core.journal import (
    COMMIT_HASH_VERSION,
    CommitResult,
    JournalEventId,
    MessageId,
    ProjectionId,
    StoredCommit,
    StreamHead,
    StreamId,
    commit_hash,
)
from hub.core.journal_selection import JournalEvent, JournalStream, Projection
from hub.core.maintenance import decide_begin
from hub.core.resume import GenerationStart
from hub.core.selection import PageBounds
from hub.core.tenure import Claim, hash_of_nonce
from hub.core.values import HubGeneration, HubProject
from hub.store import journal_reading
from hub.store.journal_rows import journal_event_bytes
from hub.store.store import SqlStore
from synchub.contract import SEQUENCE_MAX
from tests.unit.hub.journal_values import (
    MINUTE,
    TRACE,
    commit,
    credential_of,
    event,
    holder_of,
    message,
    projection,
)
from tests.unit.hub.stored_journal import OTHER, H, Writes, accept, held, store_commit
from tests.unit.hub.stored_runs import WALL_NANOS

EVERYTHING = PageBounds(10_000, 1 << 30)
LAST = "\U0010ffff"


def events_of(
    store: SqlStore,
    *,
    after: int = 0,
    types: Sequence[str] = (),
    bounds: PageBounds = EVERYTHING,
    hub_project: HubProject = H,
) -> tuple[list[int], int, int]:
    """The positions of events, up to where was looked, and the head."""
    with store.reading() as reading:
        found = reading.journal.events_after(
            hub_project, after_position=after, event_types=types, bounds=bounds
        )
    return [each.position for each in found.events], found.considered_position, found.head_position


def stream_ids(
    store: SqlStore,
    prefix: str = "",
    *,
    event_type: str | None = None,
    after: str | None = None,
    entries_max: int = 1_000,
) -> list[str]:
    with store.reading() as reading:
        streams = reading.journal.streams(
            H,
            prefix=prefix,
            event_type=event_type,
            after=None if after is None else StreamId(after),
            entries_max=entries_max,
        )
    return [stream.stream_id for stream in streams]


# --- what was stored is read ---------------------------------------------------------------------------


def test_an_event_is_read_with_all_that_was_committed(store: SqlStore) -> None:
    full = event("é", b"\x00\xff", event_type="ту", time=-5, correlation="c", causation="d", trace=TRACE)
    store_commit(store, commit("earlier", stream="t", events=[event("e0")]))
    shown = credential_of(holder="operator", nonce="other", token=2)
    begun = decide_begin(
        held(),
        Claim(holder_of("operator"), hash_of_nonce("other"), MINUTE),
        now_nanos=WALL_NANOS,
        past_nonces_max=8,
    )
    with Writes(store) as transaction:
        tried = commit("m", credential=shown, events=[full, event("e2", b"")])
        accept(transaction, tried, at=WALL_NANOS + 7, resource=begun.resource)
    with store.reading() as reading:
        found = reading.journal.events_after(H, after_position=1, event_types=(), bounds=EVERYTHING)
        of_stream = reading.journal.stream_events(
            H, StreamId("s"), after_revision=0, through_revision=9, bounds=EVERYTHING
        )
    at = WALL_NANOS + 7
    assert of_stream == list(found.events)
    first = JournalEvent(
        StreamId("s"),
        1,
        2,
        JournalEventId("é"),
        "ту",
        -5,
        at,
        MessageId("m"),
        "c",
        "d",
        TRACE,
        2,
        1,
        b"\x00\xff",
    )
    second = JournalEvent(
        StreamId("s"), 2, 3, JournalEventId("e2"), "type", at, at, MessageId("m"), "", "", "", 2, 1, b""
    )
    assert of_stream == [first, second]


def test_a_commit_is_found_by_its_message_id_with_its_hash_and_result(store: SqlStore) -> None:
    tried = commit("m", events=[event()], reply=b"reply")
    assert store_commit(store, tried).journal_head_positions == {H: 1}
    with Writes(store) as transaction:
        assert transaction.journal.commit(H, MessageId("m")) == StoredCommit(
            COMMIT_HASH_VERSION, commit_hash(tried), CommitResult(0, 1, WALL_NANOS, 1, b"reply")
        )
        for hub_project, name in ((H, "M"), (OTHER, "m")):
            assert transaction.journal.commit(hub_project, MessageId(name)) is None


def test_many_events_and_messages_keep_their_order_over_several_statements(store: SqlStore) -> None:
    many = range(1, 129)
    store_commit(
        store,
        commit(events=[event(f"e{n}") for n in many], messages=[message(f"o{n}") for n in many]),
    )
    with store.reading() as reading:
        events = reading.journal.events_after(H, after_position=0, event_types=(), bounds=EVERYTHING).events
    assert [(each.event_id, each.revision, each.position) for each in events] == [
        (f"e{n}", n, n) for n in many
    ]
    with Writes(store) as transaction:
        messages = transaction.journal.available_messages(H, "d", now_nanos=WALL_NANOS, bounds=EVERYTHING)
    assert [each.outbox_id for each in messages] == [f"o{n}" for n in many]


def test_a_stream_exists_once_a_commit_named_it(store: SqlStore) -> None:
    with store.reading() as reading:
        assert reading.journal.stream_head(H, StreamId("s")) == StreamHead(StreamId("s"), 0)
    changes = store_commit(store, commit(projections=[projection()]))
    assert changes.journal_head_positions == {}
    with Writes(store) as transaction:
        later = commit("m2", credential=credential_of(token=5), events=[event()])
        accept(transaction, later, at=WALL_NANOS + 3, resource=held(token=5))
    with store.reading() as reading:
        streams = reading.journal.streams(H, prefix="", event_type=None, after=None, entries_max=10)
        assert streams == [JournalStream(StreamId("s"), 1, 5, WALL_NANOS, WALL_NANOS + 3, None)]
        assert reading.journal.stream_head(H, StreamId("s")) == StreamHead(StreamId("s"), 1)
        for hub_project in (OTHER, HubProject("nobody")):
            assert reading.journal.stream_head(hub_project, StreamId("s")).revision == 0
            assert (
                reading.journal.streams(hub_project, prefix="", event_type=None, after=None, entries_max=10)
                == []
            )


def test_a_projection_is_replaced_and_names_the_revision_that_set_it(store: SqlStore) -> None:
    store_commit(store, commit("m1", projections=[projection("p", b"first"), projection("q", b"")]))
    both = commit("m2", events=[event()], projections=[projection("p", b"second")])
    store_commit(store, both, at=WALL_NANOS + 1)
    stream_id = StreamId("s")
    with store.reading() as reading:
        for name, value, revision, at in (("p", b"second", 1, 1), ("q", b"", 0, 0)):
            expected = Projection(ProjectionId(name), stream_id, value, revision, WALL_NANOS + at)
            assert reading.journal.projection(H, ProjectionId(name)) == expected
        assert reading.journal.projection(OTHER, ProjectionId("p")) is None
        assert reading.journal.projection(H, ProjectionId("P")) is None


def test_what_is_found_of_the_names_in_a_commit(store: SqlStore) -> None:
    store_commit(
        store,
        commit(
            "m1",
            stream="t",
            events=[event("e1"), event("e2")],
            messages=[message("o1")],
            projections=[projection("p1")],
        ),
    )
    tried = commit(
        "m2",
        events=[event("e1"), event("new")],
        messages=[message("o1", event="e2"), message("o2", event="nowhere"), message("o3", event="new")],
        projections=[projection("p1"), projection("p2")],
    )
    with Writes(store) as transaction:
        found = transaction.journal.found(H, tried, resource=held())
        elsewhere = transaction.journal.found(OTHER, tried, resource=held())
    assert (found.event_ids, found.outbox_ids, found.named_event_ids) == ({"e1"}, {"o1"}, {"e2"})
    assert (found.projection_streams, found.head_position) == ({"p1": "t"}, 2)
    assert (elsewhere.event_ids, elsewhere.outbox_ids, elsewhere.named_event_ids) == (set(), set(), set())
    assert (elsewhere.projection_streams, elsewhere.head_position) == ({}, 0)


def test_hub_projects_have_ids_streams_and_positions_of_their_own(store: SqlStore) -> None:
    same = commit(events=[event()], messages=[message()], projections=[projection()])
    for hub_project in (H, OTHER):
        assert store_commit(store, same, hub_project=hub_project).journal_head_positions == {hub_project: 1}
    assert events_of(store, hub_project=OTHER) == ([1], 1, 1)


def test_an_undone_command_gives_its_positions_to_the_next_and_is_not_announced(store: SqlStore) -> None:
    writes = Writes(store)
    with writes as transaction:
        store.writing.set_savepoint()
        accept(transaction, commit("m1", events=[event("e1"), event("e2")]))
        store.writing.undo_to_savepoint()
        store.writing.set_savepoint()
        assert accept(transaction, commit("m2", events=[event("e1")])).result.first_position == 1
        store.writing.release_savepoint()
    assert writes.changes.journal_head_positions == {H: 1}
    assert events_of(store) == ([1], 1, 1)


def test_a_group_that_was_given_up_leaves_nothing_behind_in_memory_either(store: SqlStore) -> None:
    store_commit(store, commit("m1", events=[event("e1", event_type="a")], messages=[message("o1")]))
    lost = commit(
        "m2", expected=1, events=[event("e2", event_type="b"), event("e3")], messages=[message("o2")]
    )
    given_up = store.writing.begin()
    accept(given_up, lost)
    accept(given_up, commit("m3", stream="t", events=[event("e4")]))
    store.writing.rollback()
    again = commit("m2", expected=1, events=[event("e4", event_type="b")], messages=[message("o3")])
    other = commit("m4", stream="t", events=[event("e5")])
    with Writes(store) as transaction:
        assert accept(transaction, again).result == CommitResult(1, 2, WALL_NANOS, 2, b"")
        assert accept(transaction, other).result == CommitResult(0, 1, WALL_NANOS, 3, b"")
    assert events_of(store) == ([1, 2, 3], 3, 3)
    assert stream_ids(store, event_type="b") == ["s"]
    assert stream_ids(store, event_type="type") == ["t"]
    with Writes(store) as transaction:
        messages = transaction.journal.available_messages(H, "d", now_nanos=WALL_NANOS, bounds=EVERYTHING)
    assert [each.outbox_id for each in messages] == ["o1", "o3"]


# --- ranges and bounds ---------------------------------------------------------------------------------

NAMES = [
    "a", "a%", "a%b", "a%c", "a_", "a_b", "ab", "a" + LAST, "a" + LAST + LAST, "a" + LAST + "x", "b", "A",
    "é", "e\u0301", LAST, "\uffff",
]  # fmt: skip


@pytest.mark.parametrize(
    "prefix", ["", "a", "a%", "a_", "A", "a" + LAST, "a" + LAST + LAST, LAST, "é", "e", "aé", "\uffff", "'"]
)
def test_a_prefix_is_bytes_without_wildcards(store: SqlStore, prefix: str) -> None:
    for number, name in enumerate(NAMES):
        kind = "even" if number % 2 == 0 else "odd"
        store_commit(store, commit(f"m{number}", stream=name, events=[event(f"e{number}", event_type=kind)]))
    by_bytes = sorted(NAMES, key=str.encode)
    expected = [name for name in by_bytes if name.startswith(prefix)]
    assert stream_ids(store, prefix) == expected
    even = [name for name in expected if NAMES.index(name) % 2 == 0]
    assert stream_ids(store, prefix, event_type="even") == even
    pages: list[str] = []
    while page := stream_ids(store, prefix, after=pages[-1] if pages else None, entries_max=2):
        pages += page
    assert pages == expected


def test_a_page_of_streams_never_begins_before_its_prefix(store: SqlStore) -> None:
    for name in ("a", "b", "c"):
        store_commit(store, commit(f"m-{name}", stream=name))
    assert stream_ids(store, "b", after="a") == ["b"]
    assert stream_ids(store, "b", after="b") == []
    assert stream_ids(store, "b", after="c") == []


def test_a_stream_is_listed_once_under_each_of_its_types(store: SqlStore) -> None:
    kinds = ["x", "y", "x", "é", "é"]
    for number, kind in enumerate(kinds):
        each = event(f"e{number}", event_type=kind)
        store_commit(store, commit(f"m{number}", expected=number, events=[each]))
    assert [stream_ids(store, event_type=kind) for kind in ("x", "y", "é", "X", "")] == [
        ["s"], ["s"], ["s"], [], [],
    ]  # fmt: skip


def three_events(store: SqlStore) -> list[JournalEvent]:
    store_commit(store, commit(events=[event("e1", b"x" * 10), event("é", b"x" * 20), event("e3", b"")]))
    with store.reading() as reading:
        return list(
            reading.journal.events_after(H, after_position=0, event_types=(), bounds=EVERYTHING).events
        )


def test_a_page_holds_as_many_events_as_asked_for_and_as_many_bytes(store: SqlStore) -> None:
    first, second, _ = map(journal_event_bytes, three_events(store))
    for entries_max, bytes_max, count in (
        (1, 1 << 20, 1),
        (2, 1 << 20, 2),
        (3, 1 << 20, 3),
        (9, first + second, 2),
        (9, first + second - 1, 1),
        (9, first, 1),
        (9, 1, 1),
    ):
        bounds = PageBounds(entries_max, bytes_max)
        positions = list(range(1, count + 1))
        assert events_of(store, bounds=bounds) == (positions, count, 3)
        with store.reading() as reading:
            page = reading.journal.stream_events(
                H, StreamId("s"), after_revision=0, through_revision=3, bounds=bounds
            )
        assert [each.revision for each in page] == positions


def test_revisions_are_a_range_with_both_ends(store: SqlStore) -> None:
    three_events(store)
    with store.reading() as reading:
        for after, through, revisions in ((0, 2, [1, 2]), (1, 2, [2]), (2, 2, []), (0, 0, []), (2, 3, [3])):
            page = reading.journal.stream_events(
                H, StreamId("s"), after_revision=after, through_revision=through, bounds=EVERYTHING
            )
            assert [each.revision for each in page] == revisions


def test_events_of_types_are_searched_in_bounded_steps_that_go_on(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["a", "b", "b", "b", "b", "b", "a"]
    store_commit(store, commit(events=[event(f"e{n}", event_type=kind) for n, kind in enumerate(kinds)]))
    assert events_of(store, types=["a", "c"]) == ([1, 7], 7, 7)
    assert events_of(store, types=["a"], bounds=PageBounds(1, 1 << 20)) == ([1], 1, 7)
    monkeypatch.setattr(journal_reading, "SCANNED_POSITIONS_MAX", 3)
    assert events_of(store, types=["a"]) == ([1], 3, 7)
    assert events_of(store, types=["a"], after=3) == ([], 6, 7)
    assert events_of(store, types=["a"], after=6) == ([7], 7, 7)
    assert events_of(store, types=["a"], after=7) == ([], 7, 7)


def test_each_generation_tells_at_which_head_of_the_journal_it_began(store: SqlStore, tmp_path: Path) -> None:
    three_events(store)
    connection = apsw.Connection(str(tmp_path / "hub.db"))
    connection.execute("INSERT INTO generation (hub_generation, start_nanos) VALUES ('second', 1)")
    connection.execute(
        "INSERT INTO generation_head (ordinal, hub_project_key, head_position, journal_head_position)"
        " VALUES (2, 1, 40, 3)"
    )
    connection.close()
    with store.reading() as reading:
        first, second = reading.journal.generations(H)
        assert (first.head_position, second) == (0, GenerationStart(HubGeneration("second"), 3))
        assert [each.head_position for each in reading.generations(H)] == [0, 40]
        assert [each.head_position for each in reading.journal.generations(OTHER)] == [0, 0]


def test_positions_at_their_end_are_stored_and_read(store: SqlStore, tmp_path: Path) -> None:
    three_events(store)
    connection = apsw.Connection(str(tmp_path / "hub.db"))
    connection.execute("UPDATE hub_project SET journal_head_position = ?", (SEQUENCE_MAX - 1,))
    connection.close()
    store.writing.close()  # what it remembers of the time before is gone with its connection
    store_commit(store, commit("m2", expected=3, events=[event("last")]))
    assert events_of(store, after=SEQUENCE_MAX - 1) == ([SEQUENCE_MAX], SEQUENCE_MAX, SEQUENCE_MAX)
    store_commit(store, commit("m3", expected=4, projections=[projection()]))  # it needs no position
    with Writes(store) as transaction:
        stored = transaction.journal.commit(H, MessageId("m3"))
        assert stored is not None
        assert list(stored.result.positions) == []
