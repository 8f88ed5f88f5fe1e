"""Short ways to commit to streams, and to look at all that a hub project has in its journal."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import AcquireLeaseResponse, LeaseCredential
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.leasing import CALL_SECONDS_MAX, acquire_request, release

LEASE_SECONDS: Final = 600.0
"""TTL of the leases here: longer than any test."""
TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"


def leased(
    stub: LeaseServiceStub,
    hub_project: str,
    stream_id: str = "s",
    *,
    holder_id: str = "a",
    secret: str = "a1",
    ttl: float = LEASE_SECONDS,
) -> LeaseCredential:
    """The credential of a new lease on a stream."""
    request = acquire_request(hub_project, stream_id, holder_id=holder_id, secret=secret, ttl=ttl)
    return stub.AcquireLease(request, timeout=CALL_SECONDS_MAX).credential


def given_back(stub: LeaseServiceStub, hub_project: str, credential: LeaseCredential) -> None:
    release(stub, hub_project, AcquireLeaseResponse(credential=credential))


def new_event(
    event_id: str, event_type: str = "noted", *, payload: bytes = b"", correlation_id: str = ""
) -> messages.NewJournalEvent:
    return messages.NewJournalEvent(
        event_id=event_id, event_type=event_type, payload=payload, correlation_id=correlation_id
    )


def new_events(prefix: str, count: int, *, event_type: str = "noted") -> list[messages.NewJournalEvent]:
    """Events named after a prefix and their number from 1 on; the payload tells which."""
    return [
        new_event(f"{prefix}{n}", event_type, payload=f"payload of {prefix}{n}".encode())
        for n in range(1, count + 1)
    ]


def new_message(
    outbox_id: str,
    destination: str = "mail",
    *,
    event_id: str = "",
    ordering_key: str = "",
    payload: bytes = b"",
) -> messages.NewOutboxMessage:
    return messages.NewOutboxMessage(
        outbox_id=outbox_id,
        destination=destination,
        event_id=event_id,
        ordering_key=ordering_key,
        payload=payload or outbox_id.encode(),
    )


def commit_request(
    hub_project: str,
    credential: LeaseCredential | None,
    *,
    message_id: str = "m1",
    stream_id: str = "s",
    expected_revision: int = 0,
    events: Iterable[messages.NewJournalEvent] = (),
    outbox_messages: Iterable[messages.NewOutboxMessage] = (),
    projections: Iterable[messages.NewProjection] = (),
    reply: bytes = b"",
) -> messages.CommitRequest:
    return messages.CommitRequest(
        hub_project=hub_project,
        message_id=message_id,
        stream_id=stream_id,
        credential=credential,
        expected_revision=expected_revision,
        events=events,
        outbox_messages=outbox_messages,
        projections=projections,
        reply=reply,
    )


def full_request(hub_project: str, credential: LeaseCredential) -> messages.CommitRequest:
    """A commit with two events, two messages, two projections and a reply."""
    return commit_request(
        hub_project,
        credential,
        events=[
            messages.NewJournalEvent(
                event_id="é1",
                event_type="order.placed",
                payload=b"\0\xff",
                event_time=Timestamp(seconds=-1, nanos=1),
                correlation_id="cor",
                causation_id="cau",
                trace_id=TRACE_ID,
            ),
            messages.NewJournalEvent(event_id="e2", event_type="order.paid", text="grün"),
        ],
        outbox_messages=[
            new_message("o1", event_id="é1", ordering_key="k", payload=b"\xff"),
            new_message("o2", "other"),
        ],
        projections=[
            messages.NewProjection(projection_id="p1", value=b"\0v"),
            messages.NewProjection(projection_id="p2"),
        ],
        reply=b"\0reply",
    )


def commit(stub: JournalServiceStub, request: messages.CommitRequest) -> messages.CommitResponse:
    return stub.Commit(request, timeout=CALL_SECONDS_MAX)


class StreamWriter:
    """One who holds the lease of a stream and appends to it, a message id each time."""

    def __init__(self, stub: JournalServiceStub, hub_project: str, *, credential: LeaseCredential) -> None:
        """Begin with a stream that nobody has written."""
        self._stub = stub
        self._hub_project = hub_project
        self.credential = credential
        self.revision = 0
        self._commit_count = 0

    def append(
        self,
        *events: messages.NewJournalEvent,
        outbox_messages: Iterable[messages.NewOutboxMessage] = (),
    ) -> messages.CommitResponse:
        """Commit these."""
        self._commit_count += 1
        stream_id = self.credential.resource
        request = commit_request(
            self._hub_project,
            self.credential,
            message_id=f"{self._commit_count} of {sha256(stream_id.encode()).hexdigest()}",
            stream_id=stream_id,
            expected_revision=self.revision,
            events=events,
            outbox_messages=outbox_messages,
        )
        answer = commit(self._stub, request)
        self.revision = answer.revision
        return answer


def stream_page(
    stub: JournalServiceStub,
    hub_project: str,
    stream_id: str = "s",
    *,
    after: int = 0,
    through: int = 0,
    page_size: int = 0,
) -> messages.ListStreamEventsResponse:
    request = messages.ListStreamEventsRequest(
        hub_project=hub_project,
        stream_id=stream_id,
        after_revision=after,
        through_revision=through,
        page_size=page_size,
    )
    return stub.ListStreamEvents(request, timeout=CALL_SECONDS_MAX)


def stream_events(
    stub: JournalServiceStub, hub_project: str, stream_id: str = "s", *, page_size: int = 0
) -> list[messages.JournalEvent]:
    """All events of a stream up to where it is now, page by page."""
    events: list[messages.JournalEvent] = []
    after = through = 0
    while True:
        page = stream_page(stub, hub_project, stream_id, after=after, through=through, page_size=page_size)
        events.extend(page.events)
        assert page.done or page.events
        if page.done:
            return events
        after, through = page.next_revision, page.through_revision


def ids(events: Iterable[messages.JournalEvent]) -> list[str]:
    return [event.event_id for event in events]


def claim(
    stub: JournalServiceStub,
    hub_project: str,
    destination: str = "mail",
    *,
    visible: float = 0,
    max_count: int = 0,
) -> messages.ClaimOutboxMessagesResponse:
    request = messages.ClaimOutboxMessagesRequest(
        hub_project=hub_project, destination=destination, max_count=max_count
    )
    if visible:
        request.visibility_timeout.FromNanoseconds(round(visible * 1_000_000_000))
    return stub.ClaimOutboxMessages(request, timeout=CALL_SECONDS_MAX)


def claimed_ids(claimed: messages.ClaimOutboxMessagesResponse) -> list[str]:
    return [each.message.outbox_id for each in claimed.messages]


def acknowledge(
    stub: JournalServiceStub, hub_project: str, claimed: messages.ClaimedOutboxMessage
) -> "messages.OutboxOutcome.ValueType":
    request = messages.AcknowledgeOutboxMessageRequest(
        hub_project=hub_project, outbox_id=claimed.message.outbox_id, claim_id=claimed.claim_id
    )
    return stub.AcknowledgeOutboxMessage(request, timeout=CALL_SECONDS_MAX).outcome


def give_back(
    stub: JournalServiceStub, hub_project: str, claimed: messages.ClaimedOutboxMessage, *, delay: float = 0
) -> messages.ReturnOutboxMessageResponse:
    request = messages.ReturnOutboxMessageRequest(
        hub_project=hub_project, outbox_id=claimed.message.outbox_id, claim_id=claimed.claim_id
    )
    if delay:
        request.delay.FromNanoseconds(round(delay * 1_000_000_000))
    return stub.ReturnOutboxMessage(request, timeout=CALL_SECONDS_MAX)


def outbox(stub: JournalServiceStub, hub_project: str) -> list[messages.OutboxMessage]:
    """All outbox messages: those not delivered in order and at one moment, then those delivered."""
    found: list[messages.OutboxMessage] = []
    for state in (messages.OUTBOX_MESSAGE_STATE_UNSPECIFIED, messages.OUTBOX_MESSAGE_STATE_DELIVERED):
        request = messages.ListOutboxMessagesRequest(hub_project=hub_project, state=state)
        while True:
            page = stub.ListOutboxMessages(request, timeout=CALL_SECONDS_MAX)
            found.extend(page.messages)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
    return found


class Everything(NamedTuple):
    """All that a hub project has in its journal, as far as it can be read."""

    streams: list[messages.JournalStream]
    events: list[messages.JournalEvent]
    outbox_messages: list[messages.OutboxMessage]
    head_position: int


def everything(stub: JournalServiceStub, hub_project: str) -> Everything:
    """Read all; to be compared before and after what must change nothing."""
    streams: list[messages.JournalStream] = []
    stream_request = messages.ListStreamsRequest(hub_project=hub_project)
    while True:
        page = stub.ListStreams(stream_request, timeout=CALL_SECONDS_MAX)
        streams.extend(page.streams)
        if not page.next_page_token:
            break
        stream_request.page_token = page.next_page_token
    events: list[messages.JournalEvent] = []
    journal_request = messages.ListJournalRequest(hub_project=hub_project)
    while True:
        journal_page = stub.ListJournal(journal_request, timeout=CALL_SECONDS_MAX)
        events.extend(journal_page.events)
        if journal_page.done:
            break
        journal_request.after_position = journal_page.next_position
        journal_request.hub_generation = journal_page.hub_generation
    return Everything(streams, events, outbox(stub, hub_project), journal_page.next_position)


def projection(stub: JournalServiceStub, hub_project: str, projection_id: str) -> messages.Projection:
    request = messages.GetProjectionRequest(hub_project=hub_project, projection_id=projection_id)
    return stub.GetProjection(request, timeout=CALL_SECONDS_MAX).projection
