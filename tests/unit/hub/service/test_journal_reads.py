"""The journal as it is read: pages that hold together, and expiries that are durable before they are told."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hub.core.errors import GenerationChanged, InvalidRequest, NotFound, PositionAhead
from hub.core.journal import ProjectionId, StreamId
from hub.core.journal_selection import JournalQuery, OutboxFilter, Projection, StreamPage, StreamQuery
from hub.core.lease_errors import StaleLease
from hub.core.selection import PageBounds
from hub.core.tenure import Credential
from hub.service.journal_reads import JournalPage, StreamsView
from hub.store import journal_reading
from tests.unit.hub.gate import caller_of
from tests.unit.hub.journal_gate import EVERYTHING, JournalGate
from tests.unit.hub.journal_values import MINUTE, SECOND, commit, event, message, projection

S = StreamId("s")
TWO = PageBounds(2, 1 << 30)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[JournalGate]:
    gate = JournalGate(tmp_path)
    yield gate
    gate.close()


def write(gate: JournalGate, count: int, *, stream: str = "s", kinds: str = "t") -> Credential:
    """Append so many events to a new stream, their types one after the other, and keep its lease."""
    shown = gate.credential(stream)
    events = [event(f"{stream}{n}", event_type=kinds[n % len(kinds)]) for n in range(1, count + 1)]
    gate.commit(commit(f"m of {stream}", stream=stream, credential=shown, events=events))
    return shown


def page_of(gate: JournalGate, query: StreamQuery, bounds: PageBounds = EVERYTHING) -> StreamPage:
    return gate.answer(gate.journal_reads.stream_events(gate.caller, query, bounds=bounds))


def told(page: StreamPage) -> tuple[list[int], int, int, bool]:
    revisions = [each.revision for each in page.events]
    return revisions, page.next_revision, page.through_revision, page.is_done


# --- events of a stream ------------------------------------------------------------------------------


def test_a_stream_is_read_page_by_page_up_to_where_it_was_when_the_reading_began(gate: JournalGate) -> None:
    shown = write(gate, 5)
    first = page_of(gate, StreamQuery(S), TWO)
    assert told(first) == ([1, 2], 2, 5, False)
    gate.commit(commit("more", credential=shown, expected=5, events=[event("e6")]))
    second = page_of(gate, StreamQuery(S, 2, 5), TWO)
    assert told(second) == ([3, 4], 4, 5, False)
    assert told(page_of(gate, StreamQuery(S, 4, 5), TWO)) == ([5], 5, 5, True)
    assert told(page_of(gate, StreamQuery(S, 4), TWO)) == ([5, 6], 6, 6, True)


def test_a_page_that_is_full_at_the_end_of_the_stream_is_the_last(gate: JournalGate) -> None:
    write(gate, 2)
    assert told(page_of(gate, StreamQuery(S), TWO)) == ([1, 2], 2, 2, True)
    assert told(page_of(gate, StreamQuery(S, 2), TWO)) == ([], 2, 2, True)


@pytest.mark.parametrize("stream", ["never", "s"])
def test_a_stream_without_events_reads_as_empty_at_revision_0(gate: JournalGate, stream: str) -> None:
    gate.commit(commit(credential=gate.credential(), projections=[projection()]))
    assert told(page_of(gate, StreamQuery(StreamId(stream)))) == ([], 0, 0, True)
    gate.caller = caller_of("other")
    assert told(page_of(gate, StreamQuery(S))) == ([], 0, 0, True)


@pytest.mark.parametrize(
    ("after", "through", "field"),
    [
        (0, 4, "through_revision"),
        (3, 2, "through_revision"),
        (4, None, "after_revision"),
        (4, 4, "through_revision"),
    ],
)
def test_a_range_ahead_of_the_stream_or_behind_itself_is_refused_with_the_streams_revision(
    gate: JournalGate, after: int, through: int | None, field: str
) -> None:
    write(gate, 3)
    with pytest.raises(InvalidRequest) as caught:
        page_of(gate, StreamQuery(S, after, through))
    assert caught.value.metadata() == {"field": field, "streamId": "s", "revision": "3"}


# --- fenced reads ------------------------------------------------------------------------------------


def test_a_holder_that_shows_its_credential_reads(gate: JournalGate) -> None:
    shown = write(gate, 3)
    assert told(page_of(gate, StreamQuery(S, credential=shown))) == ([1, 2, 3], 3, 3, True)


def test_a_fenced_read_is_refused_before_anything_else_is_looked_at(gate: JournalGate) -> None:
    shown = write(gate, 3)
    gate.pass_time(MINUTE)
    gate.credential(holder="b", nonce="other")
    with pytest.raises(StaleLease) as caught:
        page_of(gate, StreamQuery(S, 77, credential=shown))
    assert caught.value.cause == "LEASE_SUPERSEDED"
    elsewhere = gate.credential("t")
    with pytest.raises(StaleLease) as caught:
        page_of(gate, StreamQuery(S, credential=elsewhere))
    assert caught.value.cause == "OTHER_RESOURCE"


def test_an_expiry_told_to_a_reader_outlives_a_restart_with_an_earlier_clock(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path)
    shown = write(gate, 1)
    start = gate.clock.now()
    gate.elapsed_nanos += MINUTE
    with pytest.raises(StaleLease) as caught:
        page_of(gate, StreamQuery(S, credential=shown))
    assert caught.value.cause == "LEASE_EXPIRED"
    gate.close()
    gate = JournalGate(tmp_path, wall_nanos=start)
    assert gate.clock.now() >= start + MINUTE
    with pytest.raises(StaleLease):
        page_of(gate, StreamQuery(S, credential=shown))
    gate.close()


def test_a_lease_renewed_in_time_but_not_yet_durable_is_not_told_as_expired(gate: JournalGate) -> None:
    """The renewal was in time and waits for the COMMIT of its group, while a reader sees the old state."""
    shown = write(gate, 1)
    gate.elapsed_nanos += MINUTE - 1
    session = gate.store.writing
    transaction = session.begin()
    before = transaction.leases.resource(gate.caller.hub_project, shown.resource)
    assert before.lease is not None
    renewed = before.lease.renewed(gate.clock.now(), ttl_nanos=None)
    after = replace(before, lease=renewed)
    transaction.leases.save_resource(gate.caller.hub_project, before, after=after)
    gate.elapsed_nanos += 1
    read = gate.loop.create_task(
        gate.journal_reads.stream_events(gate.caller, StreamQuery(S, credential=shown), bounds=EVERYTHING)
    )
    gate.run_without_commits()
    assert not read.done()
    session.commit(gate.clock.now())
    gate.settle()
    assert told(read.result()) == ([1], 1, 1, True)


# --- streams -----------------------------------------------------------------------------------------


def streams_of(gate: JournalGate) -> StreamsView:
    return gate.answer(
        gate.journal_reads.streams(gate.caller, prefix="", event_type=None, after=None, entries_max=10)
    )


def test_whether_a_stream_is_leased_is_told_for_the_moment(gate: JournalGate) -> None:
    write(gate, 1, stream="s")
    gate.pass_time(30 * SECOND)
    released = write(gate, 1, stream="t")
    gate.answer(gate.leases.release(gate.caller, released, repeat=None))
    write(gate, 1, stream="u")
    view = streams_of(gate)
    assert [(each.stream_id, each.is_leased(view.now_nanos)) for each in view.streams] == [
        ("s", True),
        ("t", False),
        ("u", True),
    ]
    gate.pass_time(30 * SECOND)
    view = streams_of(gate)
    assert [each.is_leased(view.now_nanos) for each in view.streams] == [False, False, True]


@pytest.mark.parametrize("event_type", [None, "t"])
def test_a_lease_of_another_hub_project_on_the_name_of_a_stream_is_not_told(
    gate: JournalGate, event_type: str | None
) -> None:
    own = gate.caller
    shown = write(gate, 1)
    gate.answer(gate.leases.release(own, shown, repeat=None))
    gate.caller = caller_of("other")
    gate.credential()
    view = gate.answer(
        gate.journal_reads.streams(own, prefix="", event_type=event_type, after=None, entries_max=10)
    )
    assert [(each.stream_id, each.is_leased(view.now_nanos)) for each in view.streams] == [("s", False)]


def test_that_no_lease_lives_is_durable_before_it_is_told(tmp_path: Path) -> None:
    gate = JournalGate(tmp_path)
    write(gate, 1)
    start = gate.clock.now()
    gate.elapsed_nanos += MINUTE
    reading = gate.loop.create_task(
        gate.journal_reads.streams(gate.caller, prefix="", event_type=None, after=None, entries_max=10)
    )
    gate.run_without_commits()
    assert not reading.done()
    gate.settle()
    view = reading.result()
    assert not view.streams[0].is_leased(view.now_nanos)
    gate.close()
    gate = JournalGate(tmp_path, wall_nanos=start)
    view = streams_of(gate)
    assert not view.streams[0].is_leased(view.now_nanos)
    gate.close()


def test_a_stream_whose_lease_was_renewed_in_time_but_not_yet_durably_is_not_told_as_free(
    gate: JournalGate,
) -> None:
    """The renewal was in time and waits for the COMMIT of its group, while a reader sees the old state."""
    shown = write(gate, 1)
    gate.elapsed_nanos += MINUTE - 1
    session = gate.store.writing
    transaction = session.begin()
    before = transaction.leases.resource(gate.caller.hub_project, shown.resource)
    assert before.lease is not None
    renewed = before.lease.renewed(gate.clock.now(), ttl_nanos=None)
    after = replace(before, lease=renewed)
    transaction.leases.save_resource(gate.caller.hub_project, before, after=after)
    gate.elapsed_nanos += 1
    reading = gate.loop.create_task(
        gate.journal_reads.streams(gate.caller, prefix="", event_type=None, after=None, entries_max=10)
    )
    gate.run_without_commits()
    assert not reading.done()
    session.commit(gate.clock.now())
    gate.settle()
    view = reading.result()
    assert view.streams[0].is_leased(view.now_nanos)


# --- projections, the journal, messages --------------------------------------------------------------


def test_a_projection_is_read_or_not_found(gate: JournalGate) -> None:
    gate.commit(commit(credential=gate.credential(), events=[event()], projections=[projection()]))
    name = ProjectionId("p1")
    expected = Projection(name, S, b"value", 1, gate.clock.now())
    assert gate.answer(gate.journal_reads.projection(gate.caller, name)) == expected
    for caller, other in ((gate.caller, ProjectionId("p2")), (caller_of("other"), name)):
        with pytest.raises(NotFound) as caught:
            gate.answer(gate.journal_reads.projection(caller, other))
        assert caught.value.metadata() == {"projectionId": other}


def journal_of(gate: JournalGate, query: JournalQuery, bounds: PageBounds = EVERYTHING) -> JournalPage:
    return gate.answer(gate.journal_reads.journal(gate.caller, query, bounds=bounds))


def positions(page: JournalPage) -> tuple[list[int], int, bool]:
    return [each.position for each in page.events], page.next_position, page.is_done


def test_the_journal_is_read_over_all_streams_by_position(gate: JournalGate) -> None:
    write(gate, 2, stream="s")
    write(gate, 2, stream="t")
    first = journal_of(gate, JournalQuery(), PageBounds(3, 1 << 30))
    assert positions(first) == ([1, 2, 3], 3, False)
    assert [each.stream_id for each in first.events] == ["s", "s", "t"]
    rest = JournalQuery(hub_generation=first.hub_generation, after_position=3)
    assert positions(journal_of(gate, rest)) == ([4], 4, True)
    assert positions(journal_of(gate, JournalQuery(is_from_now=True))) == ([], 4, True)
    gate.caller = caller_of("other")
    assert positions(journal_of(gate, JournalQuery())) == ([], 0, True)


def test_a_page_of_types_may_be_empty_and_goes_on(gate: JournalGate, monkeypatch: pytest.MonkeyPatch) -> None:
    write(gate, 5, kinds="ab")
    monkeypatch.setattr(journal_reading, "SCANNED_POSITIONS_MAX", 1)
    query = JournalQuery(event_types=("a",))
    assert positions(journal_of(gate, query)) == ([], 1, False)
    generation = gate.store.hub_generation
    again = JournalQuery(event_types=("a",), hub_generation=generation, after_position=1)
    assert positions(journal_of(gate, again)) == ([2], 2, False)
    last = JournalQuery(event_types=("a",), hub_generation=generation, after_position=4)
    assert positions(journal_of(gate, last)) == ([], 5, True)


@pytest.mark.parametrize(
    ("generation", "position", "refusal"),
    [("", 1, InvalidRequest), ("unknown", 1, GenerationChanged), (None, 3, PositionAhead)],
)
def test_the_journal_is_not_read_on_from_a_position_that_does_not_hold(
    gate: JournalGate, generation: str | None, position: int, refusal: type[Exception]
) -> None:
    write(gate, 2)
    query = JournalQuery(
        hub_generation=gate.store.hub_generation if generation is None else generation,
        after_position=position,
    )
    with pytest.raises(refusal):
        journal_of(gate, query)


def test_outbox_messages_are_read_page_by_page(gate: JournalGate) -> None:
    gate.commit(commit(credential=gate.credential(), messages=[message(f"o{n}") for n in range(5)]))
    place, names = None, []
    while True:
        page = gate.answer(
            gate.journal_reads.outbox_messages(gate.caller, OutboxFilter("d"), after=place, bounds=TWO)
        )
        assert page.now_nanos == gate.clock.now()
        names.append([each.outbox_id for each in page.messages])
        place = page.next_place
        if place is None:
            break
    assert names == [["o0", "o1"], ["o2", "o3"], ["o4"]]


def test_reading_changes_nothing(gate: JournalGate) -> None:
    write(gate, 3)
    gate.commit(commit("m", stream="t", credential=gate.credential("t"), messages=[message()]))
    stored = gate.stored()
    page_of(gate, StreamQuery(S))
    streams_of(gate)
    journal_of(gate, JournalQuery())
    gate.messages()
    assert gate.stored() == stored
