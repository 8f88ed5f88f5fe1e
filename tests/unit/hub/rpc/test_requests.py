"""Field checks, page sizes and page tokens."""

import base64

import pytest

from hub.core.errors import InvalidRequest, Violation
from hub.core.limits import Limits
from hub.rpc.requests import RequestCheck, _page_checksum, page_token_after
from synchub.v1.presence_service_pb2 import ListRuntimesRequest
from synchub.v1.sync_service_pb2 import ListEventsRequest, ListRunsRequest


def violations_of(check: RequestCheck) -> list[Violation]:
    with pytest.raises(InvalidRequest) as caught:
        check.refuse_violations()
    return caught.value.violations


def test_a_request_that_keeps_the_bounds_is_not_refused() -> None:
    check = RequestCheck(Limits())
    check.identifier("run_id", "a")
    check.optional_identifier("project_id", "")
    check.event_type("event_type", "x" * 128)
    check.attributes("labels", {"k": ""})
    check.hash("chain_hash", bytes(32))
    check.optional_hash("content_hash", b"")
    check.not_negative("after_sequence", 0)
    check.at_most("runs", 1_000, count_max=1_000)
    check.refuse_violations()
    assert check.is_clean


def test_all_that_is_wrong_is_told_at_once() -> None:
    check = RequestCheck(Limits())
    check.identifier("run_id", "")
    check.event_type("events[3].event_type", "x" * 129)
    check.hash("chain_hash", b"x")
    check.not_negative("after_sequence", -1)
    assert violations_of(check) == [
        Violation("run_id", "is empty; 1 to 256 bytes are needed"),
        Violation("events[3].event_type", "has 129 bytes; at most 128 are allowed"),
        Violation("chain_hash", "has 1 bytes; 32 are needed"),
        Violation("after_sequence", "is -1; 0 or more is needed"),
    ]


def test_at_most_sixteen_violations_are_told() -> None:
    check = RequestCheck(Limits())
    for index in range(100):
        check.add(f"events[{index}]", "is wrong")
    assert [each.field for each in violations_of(check)] == [f"events[{index}]" for index in range(16)]


def test_a_page_size_of_zero_is_the_default_and_a_larger_one_is_lowered() -> None:
    check = RequestCheck(Limits())
    assert [check.page_size(size) for size in (0, 1, 1_000, 1_001, 2**31 - 1)] == [
        100,
        1,
        1_000,
        1_000,
        1_000,
    ]
    assert [check.event_page_size(size) for size in (0, 5_001)] == [500, 5_000]
    check.refuse_violations()


def test_a_negative_page_size_is_refused() -> None:
    check = RequestCheck(Limits())
    check.page_size(-1)
    assert violations_of(check) == [Violation("page_size", "is -1; 0 or more is needed")]


def test_a_page_token_gives_its_key_back_for_the_same_request_of_any_page_size() -> None:
    token = page_token_after(ListRunsRequest(hub_project="h", page_size=3), "prøject", 'r"\\')
    request = ListRunsRequest(hub_project="h", page_size=7, page_token=token)
    assert RequestCheck(Limits()).text_page_key(request, token, count=2) == ("prøject", 'r"\\')


def test_a_page_token_holds_a_number() -> None:
    request = ListEventsRequest(hub_project="h", project_id="p", run_id="r")
    token = page_token_after(request, 2**63 - 1)
    assert RequestCheck(Limits()).number_page_key(request, token) == 2**63 - 1


def test_no_page_token_is_the_first_page() -> None:
    assert RequestCheck(Limits()).text_page_key(ListRunsRequest(), "", count=2) is None


@pytest.mark.parametrize(
    "request_of_another",
    [ListRunsRequest(hub_project="other"), ListRuntimesRequest(hub_project="h")],
    ids=["other parameters", "another list"],
)
def test_a_page_token_of_another_request_is_refused(
    request_of_another: ListRunsRequest | ListRuntimesRequest,
) -> None:
    token = page_token_after(ListRunsRequest(hub_project="h"), "p")
    check = RequestCheck(Limits())
    assert check.text_page_key(request_of_another, token, count=1) is None
    assert violations_of(check) == [Violation("page_token", "is not from a response to the same request")]


@pytest.mark.parametrize(
    "token",
    ["x", "ü", "!!!!", base64.urlsafe_b64encode(bytes(40)).decode(), "A" * 10_000, "\0"],
)
def test_what_is_no_page_token_is_refused(token: str) -> None:
    check = RequestCheck(Limits())
    assert check.text_page_key(ListRunsRequest(), token, count=2) is None
    assert [each.field for each in violations_of(check)] == ["page_token"]


def test_a_number_is_no_key_of_texts() -> None:
    check = RequestCheck(Limits())
    assert check.text_page_key(ListRunsRequest(), page_token_after(ListRunsRequest(), 7), count=1) is None
    assert [each.field for each in violations_of(check)] == ["page_token"]


def test_texts_are_no_number() -> None:
    check = RequestCheck(Limits())
    assert check.number_page_key(ListRunsRequest(), page_token_after(ListRunsRequest(), "p", "r")) is None
    assert [each.field for each in violations_of(check)] == ["page_token"]


def test_a_page_of_the_journal_of_streams_and_a_claim_have_sizes_of_their_own() -> None:
    check = RequestCheck(Limits())
    sizes = (0, 1, 100, 128, 129, 512, 513)
    assert [check.journal_page_size(size) for size in sizes] == [128, 1, 100, 128, 128, 128, 128]
    assert [check.stream_page_size(size) for size in sizes] == [128, 1, 100, 128, 129, 512, 512]
    assert [check.claim_count(size) for size in sizes] == [100, 1, 100, 100, 100, 100, 100]
    assert check.is_clean
    check.journal_page_size(-1)
    check.stream_page_size(-1)
    check.claim_count(-1)
    assert [each.field for each in violations_of(check)] == ["page_size", "page_size", "max_count"]


@pytest.mark.parametrize("prefix", ["", "%", "_\\", " a\n", "x" * 256, "\U0010ffff" * 64])
def test_a_prefix_is_any_text_as_long_as_an_identifier(prefix: str) -> None:
    check = RequestCheck(Limits())
    check.prefix("stream_id_prefix", prefix)
    assert check.is_clean


@pytest.mark.parametrize("prefix", ["\0", "x" * 257, "ü" * 129])
def test_what_no_identifier_begins_with_is_no_prefix(prefix: str) -> None:
    check = RequestCheck(Limits())
    check.prefix("stream_id_prefix", prefix)
    assert [each.field for each in violations_of(check)] == ["stream_id_prefix"]


def test_a_page_token_holds_as_many_numbers_as_a_place_has() -> None:
    request = ListRunsRequest(hub_project="h")
    token = page_token_after(request, -(2**63), 2**63 - 1)
    check = RequestCheck(Limits())
    assert check.number_page_keys(request, token, count=2) == (-(2**63), 2**63 - 1)
    assert check.number_page_keys(request, "", count=2) is None
    assert check.is_clean


@pytest.mark.parametrize("key", [(1,), (1, "x"), (1, 2, 3), (1, 2**63), (-(2**63) - 1, 1)])
def test_a_page_token_of_another_form_is_refused(key: tuple[int | str, ...]) -> None:
    request = ListRunsRequest(hub_project="h")
    check = RequestCheck(Limits())
    assert check.number_page_keys(request, page_token_after(request, *key), count=2) is None
    assert [each.field for each in violations_of(check)] == ["page_token"]


def test_a_page_token_never_holds_what_no_store_can_be_asked_for() -> None:
    request = ListRunsRequest(hub_project="h")
    for body in (b'["\\ud800"]', b"[true]", b"[9223372036854775808]", b"[1.5]", b"[null]"):
        # Anybody can compute the checksum: it is no secret.
        token = base64.urlsafe_b64encode(_page_checksum(request, body) + body).decode()
        check = RequestCheck(Limits())
        assert check.text_page_key(request, token, count=1) is None
        assert check.number_page_key(request, token) is None
        assert [each.field for each in violations_of(check)] == ["page_token", "page_token"]
