"""Pages of streams, of their lists, of the journal and the outbox: bounds, and what changes meanwhile."""

from collections.abc import Sequence
from typing import Final

import pytest

from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import LeaseCredential
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.journaling import (
    StreamWriter,
    everything,
    ids,
    leased,
    new_event,
    new_events,
    stream_events,
    stream_page,
)

MEBIBYTE: Final = 1024 * 1024
PAGE_ENTRIES_MAX: Final = 128
OVERHEAD_BYTES_MAX: Final = 512
"""What an event of a page may be counted as beyond what it takes on the wire."""


@pytest.fixture
def writer(journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str) -> StreamWriter:
    return StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project))


def journal_page(
    stub: JournalServiceStub, hub_project: str, **fields: object
) -> messages.ListJournalResponse:
    return stub.ListJournal(messages.ListJournalRequest(hub_project=hub_project, **fields))  # type: ignore[arg-type]


# --- pages of a stream ---


def test_a_page_holds_as_many_events_as_the_bound_and_the_last_one_says_so(
    journal_stub: JournalServiceStub, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", PAGE_ENTRIES_MAX))
    whole = stream_page(journal_stub, hub_project)
    assert (len(whole.events), whole.next_revision, whole.through_revision, whole.done) == (
        128,
        128,
        128,
        True,
    )
    writer.append(*new_events("f", 1))
    first = stream_page(journal_stub, hub_project)
    assert (len(first.events), first.next_revision, first.through_revision, first.done) == (
        128,
        128,
        129,
        False,
    )
    last = stream_page(journal_stub, hub_project, after=128, through=129)
    assert (ids(last.events), last.next_revision, last.through_revision, last.done) == (
        ["f1"],
        129,
        129,
        True,
    )


@pytest.mark.parametrize(
    ("page_size", "count"), [(0, 128), (1, 1), (127, 127), (128, 128), (129, 128), (2**31 - 1, 128)]
)
def test_a_larger_page_size_is_lowered(
    journal_stub: JournalServiceStub, hub_project: str, *, writer: StreamWriter, page_size: int, count: int
) -> None:
    writer.append(*new_events("e", 128))
    writer.append(*new_events("f", 2))
    page = stream_page(journal_stub, hub_project, page_size=page_size)
    assert (len(page.events), page.next_revision, page.done) == (count, count, False)
    listed = journal_page(journal_stub, hub_project, page_size=page_size)
    assert (len(listed.events), listed.next_position, listed.done) == (count, count, False)


def test_all_pages_together_are_the_stream_whatever_their_size(
    journal_stub: JournalServiceStub, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", 10))
    expected = [f"e{n}" for n in range(1, 11)]
    for page_size in range(1, 12):
        assert ids(stream_events(journal_stub, hub_project, page_size=page_size)) == expected


def test_a_part_of_a_stream_is_read_between_two_revisions(
    journal_stub: JournalServiceStub, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", 5))
    for after in range(6):
        for through in range(max(after, 1), 6):
            page = stream_page(journal_stub, hub_project, after=after, through=through)
            assert [event.revision for event in page.events] == list(range(after + 1, through + 1))
            assert (page.next_revision, page.through_revision, page.done) == (through, through, True)


def test_a_page_is_bounded_in_bytes_as_it_is_on_the_wire(
    journal_stub: JournalServiceStub, hub_project: str, writer: StreamWriter
) -> None:
    # The sizes walk over the bound: four of some fit on a page, of others only three.
    sizes = [MEBIBYTE // 4 - step for step in (4096, 600, 100, 50, 0)]
    for n, size in enumerate(sizes):
        writer.append(*(new_event(f"{n}-{each}", payload=bytes(size)) for each in range(4)))
    for call in ("stream", "journal"):
        after, counts = 0, []
        events = stream_events(journal_stub, hub_project)
        while after < len(events):
            if call == "stream":
                page = stream_page(journal_stub, hub_project, after=after).events
            else:
                page = journal_page(
                    journal_stub, hub_project, **_after(journal_stub, hub_project, after)
                ).events
            assert list(page) == events[after : after + len(page)]
            _check_fills_a_page(page, events[after + len(page) :])
            counts.append(len(page))
            after += len(page)
        assert sorted(set(counts)) in ([3, 4], [2, 3, 4], [1, 3, 4])


def _after(stub: JournalServiceStub, hub_project: str, position: int) -> dict[str, object]:
    generation = journal_page(stub, hub_project, page_size=1).hub_generation
    return {"after_position": position, "hub_generation": generation}


def _check_fills_a_page(page: Sequence[messages.JournalEvent], rest: Sequence[messages.JournalEvent]) -> None:
    """Check that a page is within the bound, and that no more would have been."""
    size = messages.ListStreamEventsResponse(events=page).ByteSize()
    assert len(page) == 1 or size <= MEBIBYTE
    if rest:
        more = messages.ListStreamEventsResponse(events=[*page, rest[0]]).ByteSize()
        assert more > MEBIBYTE - OVERHEAD_BYTES_MAX * (len(page) + 1)


def test_an_event_that_alone_exceeds_the_bytes_is_a_page_of_its_own(
    journal_stub: JournalServiceStub, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(new_event("small"), new_event("large", payload=bytes(MEBIBYTE)), new_event("last"))
    pages = []
    after = 0
    while after < 3:
        page = stream_page(journal_stub, hub_project, after=after)
        pages.append(ids(page.events))
        assert page.done == (page.next_revision == 3)
        after = page.next_revision
    assert pages == [["small"], ["large"], ["last"]]
    assert len(stream_events(journal_stub, hub_project)[1].payload) == MEBIBYTE
    assert ids(everything(journal_stub, hub_project).events) == ["small", "large", "last"]


def test_names_and_texts_of_every_script_come_back_as_they_were(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    names = ["ünï", "漢字", "\U0001f600", "e\u0301", "\U0010ffff" * 64, "a b", "\u202ex", "𝔘"]
    writer = StreamWriter(
        journal_stub, hub_project, credential=leased(lease_stub, hub_project, "漢字/\U0001f600")
    )
    writer.append(
        *(
            messages.NewJournalEvent(
                event_id=name, event_type=name[:32], text=name, correlation_id=name, causation_id=name
            )
            for name in names
        )
    )
    events = stream_events(journal_stub, hub_project, "漢字/\U0001f600", page_size=3)
    assert ids(events) == names
    for event, name in zip(events, names, strict=True):
        assert (event.event_type, event.payload.decode()) == (name[:32], name)
        assert (event.correlation_id, event.causation_id) == (name, name)
    found = journal_stub.ListStreams(
        messages.ListStreamsRequest(hub_project=hub_project, stream_id_prefix="漢", event_type="漢字")
    )
    assert [stream.stream_id for stream in found.streams] == ["漢字/\U0001f600"]


def test_a_stream_that_grows_while_it_is_read_ends_where_the_first_page_said(
    journal_stub: JournalServiceStub, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", 5))
    page = stream_page(journal_stub, hub_project, page_size=2)
    assert (page.through_revision, page.done) == (5, False)
    read = ids(page.events)
    while not page.done:
        writer.append(*new_events(f"later{page.next_revision}-", 3))
        page = stream_page(
            journal_stub, hub_project, after=page.next_revision, through=page.through_revision, page_size=2
        )
        assert page.through_revision == 5
        read += ids(page.events)
    assert read == [f"e{n}" for n in range(1, 6)]
    # Who does not pass it on reads up to the revision of each moment.
    assert stream_page(journal_stub, hub_project, after=5).through_revision == writer.revision == 11


def test_a_page_beyond_the_end_or_before_its_begin_is_refused_with_where_the_stream_is(
    journal_stub: JournalServiceStub, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", 3))
    assert stream_page(journal_stub, hub_project, after=3).done
    for after, through, field in (
        (0, 4, "through_revision"),
        (2, 1, "through_revision"),
        (4, 0, "after_revision"),
    ):
        refusal = refusal_of(lambda: stream_page(journal_stub, hub_project, after=after, through=through))  # noqa: B023
        assert refusal.reason == "INVALID_REQUEST"
        assert [each.field for each in refusal.violations] == [field]


# --- fenced reads ---


def fenced(
    stub: JournalServiceStub, hub_project: str, credential: LeaseCredential, *, after: int = 0
) -> messages.ListStreamEventsResponse:
    request = messages.ListStreamEventsRequest(
        hub_project=hub_project, stream_id="s", credential=credential, after_revision=after, page_size=1
    )
    return stub.ListStreamEvents(request)


def test_a_holder_that_shows_its_credential_reads_as_long_as_it_is_current(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, *, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", 2))
    assert ids(fenced(journal_stub, hub_project, writer.credential).events) == ["e1"]
    # The restarted process has the stream now; the old one hears of it in the middle of its pages.
    leased(lease_stub, hub_project, secret="a2")
    refusal = refusal_of(lambda: fenced(journal_stub, hub_project, writer.credential, after=1))
    assert (refusal.reason, refusal.metadata["cause"]) == ("STALE_LEASE", "LEASE_SUPERSEDED")
    # Without a credential everybody reads.
    assert ids(stream_events(journal_stub, hub_project)) == ["e1", "e2"]


def test_a_credential_of_another_stream_reads_nothing(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, *, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", 1))
    other = leased(lease_stub, hub_project, "other")
    refusal = refusal_of(lambda: fenced(journal_stub, hub_project, other))
    assert (refusal.reason, refusal.metadata["cause"]) == ("STALE_LEASE", "OTHER_RESOURCE")


# --- pages of the journal ---


def test_the_journal_is_read_on_from_where_a_page_ended(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    writers = [
        StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project, name))
        for name in "ab"
    ]
    for n in range(3):
        for writer, name in zip(writers, "ab", strict=True):
            writer.append(new_event(f"{name}{n}", f"type {name}"))
    read: list[str] = []
    page = journal_page(journal_stub, hub_project, event_types=["type b"], page_size=1)
    while True:
        read += ids(page.events)
        if page.done:
            break
        page = journal_page(
            journal_stub,
            hub_project,
            event_types=["type b"],
            page_size=1,
            after_position=page.next_position,
            hub_generation=page.hub_generation,
        )
    assert read == ["b0", "b1", "b2"]
    assert page.next_position == 6


def test_the_journal_from_now_is_its_head(
    journal_stub: JournalServiceStub, hub_stub: HubServiceStub, *, hub_project: str, writer: StreamWriter
) -> None:
    writer.append(*new_events("e", 2))
    generation = hub_stub.GetHubInfo(GetHubInfoRequest()).hub_generation
    page = journal_page(journal_stub, hub_project, from_now=True)
    assert page == messages.ListJournalResponse(next_position=2, hub_generation=generation, done=True)


def test_an_empty_journal_is_done_at_once(journal_stub: JournalServiceStub, hub_project: str) -> None:
    page = journal_page(journal_stub, hub_project)
    assert (len(page.events), page.next_position, page.done) == (0, 0, True)
    assert page.hub_generation
