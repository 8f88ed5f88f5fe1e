"""The journal between protobuf and the hub's values: every check of a field."""

from collections.abc import Callable
from typing import Final

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from hub.core.errors import InvalidRequest, Violation
from hub.core.journal import (
    Commit,
    JournalEventId,
    MessageId,
    NewEvent,
    NewOutboxMessage,
    NewProjection,
    OutboxId,
    ProjectionId,
    StreamId,
)
from hub.core.limits import Limits
from hub.core.outbox import OutboxState
from hub.core.tenure import Credential, hash_of_nonce
from hub.core.values import HolderId, ResourceName, RuntimeId
from hub.rpc.codec_journal import (
    commit_from_proto,
    delay_nanos_from_proto,
    outbox_state_from_proto,
    visible_nanos_from_proto,
)
from hub.rpc.requests import RequestCheck
from synchub.contract import EVENT_TIME_NANOS_MAX, EVENT_TIME_NANOS_MIN, NANOS_PER_SECOND
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.lease_service_pb2 import LeaseCredential

LIMITS: Final = Limits()
NONCE: Final = "n" * 22
MEBIBYTE: Final = 1024 * 1024
TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"


def request(**changes: object) -> messages.CommitRequest:
    """A commit with one of each; ``changes`` are fields in place of its own."""
    made = messages.CommitRequest(
        message_id="m",
        stream_id="s",
        credential=LeaseCredential(
            resource="s", runtime_id="runtime", holder_id="a", fencing_token=1, nonce=NONCE
        ),
        expected_revision=4,
        events=[messages.NewJournalEvent(event_id="e", event_type="t", payload=b"\0\xff")],
        outbox_messages=[messages.NewOutboxMessage(outbox_id="o", destination="d", text="ü")],
        projections=[messages.NewProjection(projection_id="p", value=b"v")],
        reply=b"r",
    )
    for field in changes:
        made.ClearField(field)  # type: ignore[arg-type]
    made.MergeFrom(messages.CommitRequest(**changes))  # type: ignore[arg-type]
    return made


def event(**fields: object) -> list[messages.NewJournalEvent]:
    given = {"event_id": "e", "event_type": "t", **fields}
    return [messages.NewJournalEvent(**given)]  # type: ignore[arg-type]


def outbox_message(**fields: object) -> list[messages.NewOutboxMessage]:
    given = {"outbox_id": "o", "destination": "d", **fields}
    return [messages.NewOutboxMessage(**given)]  # type: ignore[arg-type]


def read(made: messages.CommitRequest) -> Commit:
    return commit_from_proto(made, LIMITS, check=RequestCheck(LIMITS))


def violations_of(call: Callable[[], object]) -> list[Violation]:
    with pytest.raises(InvalidRequest) as caught:
        call()
    return caught.value.violations


def test_a_commit_is_read_whole() -> None:
    made = request()
    made.events.add(
        event_id="e2",
        event_type="t2",
        text="é",
        event_time=Timestamp(seconds=-1, nanos=999_999_999),
        correlation_id="c",
        causation_id="e",
        trace_id=TRACE_ID,
    )
    made.outbox_messages.add(
        outbox_id="o2",
        event_id="e2",
        destination="d",
        ordering_key="k",
        payload=b"x",
        available_time=Timestamp(seconds=7),
    )
    assert read(made) == Commit(
        message_id=MessageId("m"),
        stream_id=StreamId("s"),
        credential=Credential(
            ResourceName("s"), RuntimeId("runtime"), HolderId("a"), 1, hash_of_nonce(NONCE)
        ),
        expected_revision=4,
        events=[
            NewEvent(JournalEventId("e"), "t", b"\0\xff", None, "", "", ""),
            NewEvent(JournalEventId("e2"), "t2", "é".encode(), -1, "c", "e", TRACE_ID),
        ],
        outbox_messages=[
            NewOutboxMessage(OutboxId("o"), "", "d", "", "ü".encode(), None),
            NewOutboxMessage(OutboxId("o2"), "e2", "d", "k", b"x", 7 * NANOS_PER_SECOND),
        ],
        projections=[NewProjection(ProjectionId("p"), b"v")],
        reply=b"r",
    )


def test_a_commit_may_have_nothing_but_its_name_stream_and_credential() -> None:
    empty = read(request(events=[], outbox_messages=[], projections=[], reply=b"", expected_revision=0))
    assert (empty.events, empty.outbox_messages, empty.projections, empty.reply) == ([], [], [], b"")
    assert empty.expected_revision == 0


def test_the_epoch_is_a_time_and_no_time_is_none() -> None:
    at_epoch = read(request(events=event(event_time=Timestamp()))).events[0]
    assert at_epoch.event_time_nanos == 0
    assert read(request(events=event())).events[0].event_time_nanos is None


@pytest.mark.parametrize(
    "changes",
    [
        {"events": event(payload=bytes(MEBIBYTE))},
        {"events": event(text="x" * MEBIBYTE)},
        {"events": event(event_id="i" * 256, event_type="t" * 128)},
        {"events": [messages.NewJournalEvent(event_id=str(n), event_type="t") for n in range(128)]},
        {"outbox_messages": outbox_message(payload=bytes(MEBIBYTE))},
        {
            "outbox_messages": [
                messages.NewOutboxMessage(outbox_id=str(n), destination="d") for n in range(128)
            ]
        },
        {"projections": [messages.NewProjection(projection_id="p", value=bytes(MEBIBYTE))]},
        {"projections": [messages.NewProjection(projection_id=str(n)) for n in range(32)]},
        {"reply": bytes(MEBIBYTE)},
        {"expected_revision": 2**63 - 1},
    ],
)
def test_what_lies_on_a_bound_is_taken(changes: dict[str, object]) -> None:
    read(request(**changes))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"message_id": ""}, "message_id"),
        ({"message_id": "x" * 257}, "message_id"),
        ({"stream_id": ""}, "stream_id"),
        ({"stream_id": "a\0b"}, "stream_id"),
        ({"expected_revision": -1}, "expected_revision"),
        ({"credential": LeaseCredential()}, "credential"),
        ({"reply": bytes(MEBIBYTE + 1)}, "reply"),
        ({"events": event() * 129}, "events"),
        ({"events": event(event_id="")}, "events[0].event_id"),
        ({"events": event(event_id=" e")}, "events[0].event_id"),
        ({"events": event(event_type="")}, "events[0].event_type"),
        ({"events": event(event_type="t" * 129)}, "events[0].event_type"),
        ({"events": event(payload=bytes(MEBIBYTE + 1))}, "events[0].payload"),
        ({"events": event(text="ü" * (MEBIBYTE // 2 + 1))}, "events[0].payload"),
        ({"events": event(correlation_id="\n")}, "events[0].correlation_id"),
        ({"events": event(causation_id="x" * 257)}, "events[0].causation_id"),
        ({"events": event(trace_id="0" * 32)}, "events[0].trace_id"),
        ({"events": event(trace_id=TRACE_ID.upper())}, "events[0].trace_id"),
        ({"events": event(trace_id=TRACE_ID[:-1])}, "events[0].trace_id"),
        ({"events": event(trace_id=TRACE_ID + "\n")}, "events[0].trace_id"),
        ({"events": event(event_time=Timestamp(nanos=-1))}, "events[0].event_time"),
        ({"events": event(event_time=Timestamp(nanos=10**9))}, "events[0].event_time"),
        ({"events": event(event_time=Timestamp(seconds=2**62))}, "events[0].event_time"),
        ({"outbox_messages": outbox_message() * 129}, "outbox_messages"),
        ({"outbox_messages": outbox_message(outbox_id="")}, "outbox_messages[0].outbox_id"),
        ({"outbox_messages": outbox_message(destination="")}, "outbox_messages[0].destination"),
        ({"outbox_messages": outbox_message(event_id="\t")}, "outbox_messages[0].event_id"),
        ({"outbox_messages": outbox_message(ordering_key="k ")}, "outbox_messages[0].ordering_key"),
        ({"outbox_messages": outbox_message(payload=bytes(MEBIBYTE + 1))}, "outbox_messages[0].payload"),
        (
            {"outbox_messages": outbox_message(available_time=Timestamp(seconds=-(2**40)))},
            "outbox_messages[0].available_time",
        ),
        ({"projections": [messages.NewProjection(projection_id=str(n)) for n in range(33)]}, "projections"),
        ({"projections": [messages.NewProjection(projection_id="")]}, "projections[0].projection_id"),
        (
            {"projections": [messages.NewProjection(projection_id="p", value=bytes(MEBIBYTE + 1))]},
            "projections[0].value",
        ),
    ],
)
def test_a_commit_that_breaks_a_bound_is_refused_with_the_path_of_the_field(
    changes: dict[str, object], field: str
) -> None:
    assert [each.field for each in violations_of(lambda: read(request(**changes)))] == [field]


def test_the_path_names_which_event_and_which_message() -> None:
    made = request(events=event() * 2 + event(event_type=""))
    made.outbox_messages.add(outbox_id="o", destination="")
    fields = [each.field for each in violations_of(lambda: read(made))]
    assert fields == ["events[2].event_type", "outbox_messages[1].destination"]


def test_a_commit_is_as_large_as_its_request() -> None:
    made = request(
        events=[
            messages.NewJournalEvent(event_id=str(n), event_type="t", payload=bytes(MEBIBYTE - 1024))
            for n in range(4)
        ]
    )
    made.reply = bytes(LIMITS.commit_bytes_max - made.ByteSize())
    made.reply = bytes(len(made.reply) - (made.ByteSize() - LIMITS.commit_bytes_max))
    assert made.ByteSize() == LIMITS.commit_bytes_max
    read(made)
    made.reply += b"x"
    assert violations_of(lambda: read(made)) == [
        Violation("request", "has 4194305 bytes; at most commit_bytes_max = 4194304 fit")
    ]


def test_a_violation_of_a_credential_does_not_show_its_nonce() -> None:
    made = request()
    made.credential.nonce = secret = "short-secret"
    (violation,) = violations_of(lambda: read(made))
    assert violation.field == "credential.nonce"
    assert secret not in violation.description


@pytest.mark.parametrize("nanos", [EVENT_TIME_NANOS_MIN, EVENT_TIME_NANOS_MAX])
def test_the_first_and_the_last_moment_are_taken(nanos: int) -> None:
    seconds, rest = divmod(nanos, NANOS_PER_SECOND)
    moment = Timestamp(seconds=seconds, nanos=rest)
    assert read(request(events=event(event_time=moment))).events[0].event_time_nanos == nanos


@pytest.mark.parametrize("nanos", [EVENT_TIME_NANOS_MIN - 1, EVENT_TIME_NANOS_MAX + 1])
def test_a_moment_beyond_is_refused(nanos: int) -> None:
    seconds, rest = divmod(nanos, NANOS_PER_SECOND)
    made = request(events=event(event_time=Timestamp(seconds=seconds, nanos=rest)))
    assert violations_of(lambda: read(made)) == [
        Violation("events[0].event_time", "is not within 2^63 nanoseconds of 1970")
    ]


def test_each_state_is_told_from_the_others_and_none_is_all() -> None:
    check = RequestCheck(LIMITS)
    read_back = [outbox_state_from_proto(number, check) for number in range(5)]
    assert read_back == [
        None,
        OutboxState.PENDING,
        OutboxState.CLAIMED,
        OutboxState.DEAD,
        OutboxState.DELIVERED,
    ]
    assert check.is_clean
    outbox_state_from_proto(5, check)
    expected = [Violation("state", "is 5, which is no state of an outbox message")]
    assert violations_of(check.refuse_violations) == expected


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, 30), (Duration(), 30), (Duration(nanos=1), 1e-9), (Duration(seconds=3600), 3600)],
)
def test_a_claim_hides_for_as_long_as_is_asked_for(timeout: Duration | None, seconds: float) -> None:
    made = messages.ClaimOutboxMessagesRequest(visibility_timeout=timeout)
    nanos = visible_nanos_from_proto(made, LIMITS, check=RequestCheck(LIMITS))
    assert nanos == round(seconds * NANOS_PER_SECOND)


@pytest.mark.parametrize(
    ("span", "description"),
    [
        (Duration(seconds=3600, nanos=1), "is 3600 s; at most outbox_visibility_seconds_max = 3600 s"),
        (Duration(seconds=-1), "is negative; 0 or more is needed"),
        (Duration(nanos=10**9), "has 1000000000 nanos; -999,999,999 to 999,999,999 are allowed"),
    ],
)
def test_a_claim_that_hides_for_no_span_or_too_long_is_refused(span: Duration, description: str) -> None:
    check = RequestCheck(LIMITS)
    made = messages.ClaimOutboxMessagesRequest(visibility_timeout=span)
    visible_nanos_from_proto(made, LIMITS, check=check)
    assert violations_of(check.refuse_violations) == [Violation("visibility_timeout", description)]


def test_a_return_may_be_delayed_by_a_day_and_no_longer() -> None:
    made = messages.ReturnOutboxMessageRequest(delay=Duration(seconds=86_400))
    check = RequestCheck(LIMITS)
    assert delay_nanos_from_proto(made, LIMITS, check=check) == 86_400 * NANOS_PER_SECOND
    assert delay_nanos_from_proto(messages.ReturnOutboxMessageRequest(), LIMITS, check=check) == 0
    assert check.is_clean
    made.delay.seconds += 1
    delay_nanos_from_proto(made, LIMITS, check=check)
    description = "is 86401 s; at most outbox_return_delay_seconds_max = 86400 s"
    assert violations_of(check.refuse_violations) == [Violation("delay", description)]
