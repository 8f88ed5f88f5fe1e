"""Events carry a trace context where there is one and room for it, and nothing else of them changes."""

from typing import Final

import pytest

from runtime_agent.core.trace import is_traceparent, traced
from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from synchub.contract import ATTRIBUTE_COUNT_MAX, ATTRIBUTES_BYTES_MAX

TRACEPARENT: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def request(*events: NewEvent) -> AppendRequest:
    return AppendRequest(RunKey("p", "r"), events, append_id="a", expected_sequence=7, stamp_time=False)


@pytest.mark.parametrize(
    "text",
    [TRACEPARENT, TRACEPARENT[:-2] + "00", "cc" + TRACEPARENT[2:]],
)
def test_what_w3c_writes_is_a_context(text: str) -> None:
    assert is_traceparent(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        TRACEPARENT.upper(),
        TRACEPARENT + "\n",
        TRACEPARENT[:-1],
        TRACEPARENT + "-more",
        "ff" + TRACEPARENT[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
    ],
)
def test_anything_else_is_none_and_leaves_a_request_as_it_is(text: str) -> None:
    assert not is_traceparent(text)
    given = request(NewEvent("t"))
    assert traced(given, text) is given


def test_without_a_context_there_is_no_attribute() -> None:
    given = request(NewEvent("t"))
    assert traced(given, None) is given


def test_every_event_of_a_request_carries_the_context_and_is_else_the_same() -> None:
    first = NewEvent("t", b"payload", 5, {"color": "red"}, is_final=False)
    last = NewEvent("u", is_final=True)
    assert traced(request(first, last), TRACEPARENT) == request(
        first._replace(attributes={"color": "red", "traceparent": TRACEPARENT}),
        last._replace(attributes={"traceparent": TRACEPARENT}),
    )


def test_an_event_with_a_context_of_its_own_keeps_it() -> None:
    own = NewEvent("t", attributes={"traceparent": "my own"})
    assert traced(request(own), TRACEPARENT) == request(own)


@pytest.mark.parametrize(
    "attributes",
    [
        {f"k{number}": "" for number in range(ATTRIBUTE_COUNT_MAX)},
        {"k": "x" * (ATTRIBUTES_BYTES_MAX - 10)},
    ],
    ids=["as many pairs as are allowed", "nearly as many bytes"],
)
def test_an_event_without_room_goes_without(attributes: dict[str, str]) -> None:
    full = NewEvent("t", attributes=attributes)
    other = NewEvent("t")
    carried = other._replace(attributes={"traceparent": TRACEPARENT})
    assert traced(request(full, other), TRACEPARENT) == request(full, carried)
