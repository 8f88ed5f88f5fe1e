"""What breaks a bound or a type is refused by each call of JournalService, and changes nothing."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.lease_service_pb2 import LeaseCredential
from tests.contract.conversation import refusal_of
from tests.contract.journal_scene import Scene
from tests.contract.leasing import CALL_SECONDS_MAX, nonce

MEBIBYTE: Final = 1024 * 1024


class Case(NamedTuple):
    """A call that would be answered, and what makes it one that is refused."""

    method: str
    change: Callable[[Message], object]
    path: str


def sets(**fields: object) -> Callable[[Message], object]:
    """Return what gives a request these fields in place of its own."""

    def change(request: Message) -> None:
        for name in fields:
            request.ClearField(name)
        request.MergeFrom(type(request)(**fields))

    return change


def requests(scene: Scene) -> dict[str, Message]:
    """A request of each call that would be answered; the ids of messages are there."""
    hub_project, claim_id = scene.hub_project, scene.claimed.claim_id
    return {
        "Commit": scene.next(),
        "ListStreamEvents": messages.ListStreamEventsRequest(hub_project=hub_project, stream_id="s"),
        "ListStreams": messages.ListStreamsRequest(hub_project=hub_project),
        "GetProjection": messages.GetProjectionRequest(hub_project=hub_project, projection_id="p1"),
        "ListJournal": messages.ListJournalRequest(hub_project=hub_project),
        "WatchJournal": messages.WatchJournalRequest(hub_project=hub_project),
        "ListOutboxMessages": messages.ListOutboxMessagesRequest(hub_project=hub_project),
        "ClaimOutboxMessages": messages.ClaimOutboxMessagesRequest(
            hub_project=hub_project, destination="mail"
        ),
        "AcknowledgeOutboxMessage": messages.AcknowledgeOutboxMessageRequest(
            hub_project=hub_project, outbox_id="o1", claim_id=claim_id
        ),
        "ReturnOutboxMessage": messages.ReturnOutboxMessageRequest(
            hub_project=hub_project, outbox_id="o1", claim_id=claim_id
        ),
        "ReleaseOutboxMessage": messages.ReleaseOutboxMessageRequest(hub_project=hub_project, outbox_id="o1"),
    }


METHODS: Final = tuple(
    method.name for method in messages.DESCRIPTOR.services_by_name["JournalService"].methods
)
LONG: Final = "x" * 257
EVENT: Final = {"event_id": "e9", "event_type": "t"}
OUTBOX: Final = {"outbox_id": "o9", "destination": "d"}


def event(**fields: object) -> list[messages.NewJournalEvent]:
    return [messages.NewJournalEvent(**{**EVENT, **fields})]  # type: ignore[arg-type]


def outbox_message(**fields: object) -> list[messages.NewOutboxMessage]:
    return [messages.NewOutboxMessage(**{**OUTBOX, **fields})]  # type: ignore[arg-type]


def set_credential(**fields: object) -> Callable[[Message], object]:
    def change(request: Message) -> None:
        assert isinstance(request, messages.CommitRequest | messages.ListStreamEventsRequest)
        credential = LeaseCredential(
            resource="s", runtime_id="runtime", holder_id="a", fencing_token=1, nonce=nonce("a1")
        )
        for name, value in fields.items():
            setattr(credential, name, value)
        request.credential.CopyFrom(credential)

    return change


CREDENTIAL_CASES: Final = [
    Case(method, set_credential(**{name: value}), f"credential.{name}")
    for method in ("Commit", "ListStreamEvents")
    for name, value in (
        ("resource", ""),
        ("runtime_id", ""),
        ("holder_id", LONG),
        ("fencing_token", 0),
        ("fencing_token", -1),
        ("nonce", ""),
        ("nonce", "short"),
        ("nonce", "=" * 22),
    )
]
IDENTIFIER_CASES: Final = [
    Case(method, sets(**{name: value}), name)
    for method, names in {
        "Commit": ("message_id", "stream_id"),
        "ListStreamEvents": ("stream_id",),
        "GetProjection": ("projection_id",),
        "ClaimOutboxMessages": ("destination",),
        "AcknowledgeOutboxMessage": ("outbox_id", "claim_id"),
        "ReturnOutboxMessage": ("outbox_id", "claim_id"),
        "ReleaseOutboxMessage": ("outbox_id",),
    }.items()
    for name in names
    for value in ("", " ", "a\0b", "\n", LONG)
]
BOUND_CASES: Final = [
    Case("Commit", lambda request: request.ClearField("credential"), "credential"),
    Case("Commit", sets(credential=LeaseCredential()), "credential"),
    Case("Commit", sets(expected_revision=-1), "expected_revision"),
    Case("Commit", sets(reply=bytes(MEBIBYTE + 1)), "reply"),
    Case("Commit", sets(events=event() * 129), "events"),
    Case("Commit", sets(outbox_messages=outbox_message() * 129), "outbox_messages"),
    Case("Commit", sets(projections=[messages.NewProjection(projection_id="p")] * 33), "projections"),
    Case("Commit", sets(events=event(payload=bytes(MEBIBYTE)) * 4), "request"),
    Case("Commit", sets(events=event(event_id="")), "events[0].event_id"),
    Case("Commit", sets(events=event(event_type="t" * 129)), "events[0].event_type"),
    Case("Commit", sets(events=event(payload=bytes(MEBIBYTE + 1))), "events[0].payload"),
    Case("Commit", sets(events=event(correlation_id=LONG)), "events[0].correlation_id"),
    Case("Commit", sets(events=event(causation_id=" ")), "events[0].causation_id"),
    Case("Commit", sets(events=event(trace_id="0" * 32)), "events[0].trace_id"),
    Case("Commit", sets(events=event(event_time={"nanos": -1})), "events[0].event_time"),
    Case("Commit", sets(outbox_messages=outbox_message(outbox_id="")), "outbox_messages[0].outbox_id"),
    Case("Commit", sets(outbox_messages=outbox_message(event_id=LONG)), "outbox_messages[0].event_id"),
    Case("Commit", sets(outbox_messages=outbox_message(destination="")), "outbox_messages[0].destination"),
    Case(
        "Commit", sets(outbox_messages=outbox_message(ordering_key="\t")), "outbox_messages[0].ordering_key"
    ),
    Case(
        "Commit",
        sets(outbox_messages=outbox_message(payload=bytes(MEBIBYTE + 1))),
        "outbox_messages[0].payload",
    ),
    Case(
        "Commit",
        sets(outbox_messages=outbox_message(available_time={"seconds": 2**40})),
        "outbox_messages[0].available_time",
    ),
    Case("Commit", sets(projections=[messages.NewProjection()]), "projections[0].projection_id"),
    Case(
        "Commit",
        sets(projections=[messages.NewProjection(projection_id="p", value=bytes(MEBIBYTE + 1))]),
        "projections[0].value",
    ),
    Case("ListStreamEvents", sets(after_revision=-1), "after_revision"),
    Case("ListStreamEvents", sets(after_revision=3), "after_revision"),
    Case("ListStreamEvents", sets(through_revision=-1), "through_revision"),
    Case("ListStreamEvents", sets(through_revision=3), "through_revision"),
    Case("ListStreamEvents", sets(after_revision=2, through_revision=1), "through_revision"),
    Case("ListStreamEvents", sets(page_size=-1), "page_size"),
    Case("ListStreamEvents", sets(credential=LeaseCredential()), "credential"),
    Case("ListStreams", sets(page_size=-1), "page_size"),
    Case("ListStreams", sets(page_token="x"), "page_token"),
    Case("ListStreams", sets(stream_id_prefix="\0"), "stream_id_prefix"),
    Case("ListStreams", sets(stream_id_prefix=LONG), "stream_id_prefix"),
    Case("ListStreams", sets(event_type="t" * 129), "event_type"),
    Case("ListJournal", sets(page_size=-1), "page_size"),
    Case("ListJournal", sets(after_position=-1), "after_position"),
    Case("ListJournal", sets(after_position=1), "hub_generation"),
    Case("ListJournal", sets(from_now=False), "from_now"),
    Case("ListJournal", sets(event_types=["t", ""]), "event_types[1]"),
    Case("WatchJournal", sets(after_position=-1), "after_position"),
    Case("WatchJournal", sets(after_position=1), "hub_generation"),
    Case("WatchJournal", sets(from_now=False), "from_now"),
    Case("WatchJournal", sets(event_types=["t"] * 65), "event_types"),
    Case("ListOutboxMessages", sets(page_size=-1), "page_size"),
    Case("ListOutboxMessages", sets(page_token="x"), "page_token"),
    Case("ListOutboxMessages", sets(destination=LONG), "destination"),
    Case("ListOutboxMessages", sets(state=5), "state"),
    Case("ListOutboxMessages", sets(state=-1), "state"),
    Case("ClaimOutboxMessages", sets(max_count=-1), "max_count"),
    Case("ClaimOutboxMessages", sets(visibility_timeout=Duration(seconds=3601)), "visibility_timeout"),
    Case("ClaimOutboxMessages", sets(visibility_timeout=Duration(nanos=-1)), "visibility_timeout"),
    Case(
        "ClaimOutboxMessages",
        sets(visibility_timeout=Duration(seconds=1, nanos=-1)),
        "visibility_timeout",
    ),
    Case("ReturnOutboxMessage", sets(delay=Duration(seconds=86_401)), "delay"),
    Case("ReturnOutboxMessage", sets(delay=Duration(nanos=10**9)), "delay"),
]
HUB_PROJECT_CASES: Final = [
    Case(method, sets(hub_project=value), "hub_project") for method in METHODS for value in ("", LONG)
]
CASES: Final[Sequence[Case]] = [*HUB_PROJECT_CASES, *IDENTIFIER_CASES, *CREDENTIAL_CASES, *BOUND_CASES]


def answers(scene: Scene, method: str, request: Message) -> object:
    """Call a method; of a stream the first answer is enough."""
    answer = getattr(scene.journal, method)(request, timeout=CALL_SECONDS_MAX)
    if method == "WatchJournal":
        first = next(answer)
        answer.cancel()
        return first
    return answer


def test_each_call_is_answered_where_nothing_is_wrong_and_each_has_its_cases(scene: Scene) -> None:
    made = requests(scene)
    assert set(made) == set(METHODS) == {case.method for case in CASES}
    for method, request in made.items():
        answers(scene, method, request)


def test_what_breaks_a_bound_or_a_type_is_refused_by_its_path_and_changes_nothing(scene: Scene) -> None:
    before = scene.state()
    for case in CASES:
        request = requests(scene)[case.method]
        case.change(request)
        refusal = refusal_of(lambda: answers(scene, case.method, request))  # noqa: B023
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST"), case
        assert [each.field for each in refusal.violations] == [case.path], case
    assert scene.state() == before
