"""Lists of streams: prefixes, event types, and pages that stay as they are while streams are added."""

from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.journaling import StreamWriter, leased, new_event


def streams_page(
    stub: JournalServiceStub, hub_project: str, **fields: object
) -> messages.ListStreamsResponse:
    return stub.ListStreams(messages.ListStreamsRequest(hub_project=hub_project, **fields))  # type: ignore[arg-type]


def stream_ids(stub: JournalServiceStub, hub_project: str, **fields: object) -> list[str]:
    """The ids on all pages of a list of streams."""
    found: list[str] = []
    token = ""
    while True:
        page = streams_page(stub, hub_project, page_token=token, **fields)
        found += [stream.stream_id for stream in page.streams]
        token = page.next_page_token
        if not token:
            return found


def test_a_prefix_is_bytes_and_has_no_wildcards(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    names = [
        "%",
        "%%",
        "%a",
        "_",
        "_a",
        "a",
        "a%",
        "a%b",
        "a_b",
        "ab",
        "axb",
        "b",
        "\U0010ffff",
        "\U0010ffffx",
        "é",
        "*",
        "[a]",
        "\\",
        "'",
    ]
    for name in names:
        StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project, name)).append()
    prefixes = [
        "",
        "%",
        "%%",
        "_",
        "a",
        "a%",
        "a_",
        "ab",
        "\U0010ffff",
        "é",
        "e",
        "*",
        "[",
        "\\",
        "'",
        "a%b",
        "zzz",
        " ",
    ]
    for prefix in prefixes:
        expected = sorted((name for name in names if name.startswith(prefix)), key=str.encode)
        assert stream_ids(journal_stub, hub_project, stream_id_prefix=prefix) == expected
        assert stream_ids(journal_stub, hub_project, stream_id_prefix=prefix, page_size=1) == expected


def test_a_prefix_of_the_last_code_points_has_an_end(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    last = "\U0010ffff"
    names = ["a", last * 3, last * 63 + "x", last * 64, "\ud7ff", "\ue000", "\uffff"]
    for name in names:
        StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project, name)).append()
    for prefix in (last, last * 2, last * 63, last * 64, "\ud7ff", "\uffff"):
        expected = sorted((name for name in names if name.startswith(prefix)), key=str.encode)
        assert stream_ids(journal_stub, hub_project, stream_id_prefix=prefix) == expected


def test_streams_are_found_by_the_types_of_their_events(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    types = {"a": ["x"], "b": ["y"], "ab": ["x", "y"], "c": [], "ac": ["x%"]}
    for name, event_types in types.items():
        writer = StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project, name))
        writer.append(*(new_event(f"{name}-{each}", each) for each in event_types))
        writer.append(*(new_event(f"{name}-{each} again", each) for each in event_types))
    assert stream_ids(journal_stub, hub_project, event_type="x") == ["a", "ab"]
    assert stream_ids(journal_stub, hub_project, event_type="x", page_size=1) == ["a", "ab"]
    assert stream_ids(journal_stub, hub_project, event_type="x", stream_id_prefix="ab") == ["ab"]
    assert stream_ids(journal_stub, hub_project, event_type="X") == []
    assert stream_ids(journal_stub, hub_project, event_type="x%") == ["ac"]


def test_pages_of_streams_are_stable_while_streams_are_added(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    for name in ("b", "d", "f"):
        StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project, name)).append()
    first = streams_page(journal_stub, hub_project, page_size=2)
    assert [each.stream_id for each in first.streams] == ["b", "d"]
    for name in ("a", "c", "e", "g"):
        StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project, name)).append()
    token = first.next_page_token
    second = streams_page(journal_stub, hub_project, page_size=9, page_token=token)
    # What lies behind is not seen again, what lies ahead is.
    assert [each.stream_id for each in second.streams] == ["e", "f", "g"]
    assert second.next_page_token == ""


def test_a_page_of_streams_has_a_default_and_a_largest_size(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    for n in range(130):
        StreamWriter(
            journal_stub, hub_project, credential=leased(lease_stub, hub_project, f"s{n:03}")
        ).append()
    for page_size, count in ((0, 128), (128, 128), (129, 129), (130, 130), (512, 130), (2**31 - 1, 130)):
        page = streams_page(journal_stub, hub_project, page_size=page_size)
        assert (len(page.streams), bool(page.next_page_token)) == (count, count < 130)


def test_a_page_token_of_another_request_is_refused(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    for name in ("a", "b"):
        StreamWriter(journal_stub, hub_project, credential=leased(lease_stub, hub_project, name)).append()
    token = streams_page(journal_stub, hub_project, page_size=1).next_page_token
    for changed in ({"stream_id_prefix": "a"}, {"event_type": "x"}):
        refusal = refusal_of(
            lambda: streams_page(journal_stub, hub_project, page_token=token, **changed)  # noqa: B023
        )
        assert [each.field for each in refusal.violations] == ["page_token"]
