"""Short ways to commits, their parts and credentials, for tests of the journal."""

from collections.abc import Sequence
from typing import Final

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
    stream_resource,
)
from hub.core.tenure import Credential, Holder, hash_of_nonce
from hub.core.values import HolderId, RuntimeId

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"


def holder_of(name: str) -> Holder:
    return Holder(RuntimeId("runtime"), HolderId(name))


def credential_of(
    stream: str = "s", holder: str = "a", *, nonce: str = "nonce", token: int = 1
) -> Credential:
    return Credential(
        stream_resource(StreamId(stream)),
        RuntimeId("runtime"),
        HolderId(holder),
        token,
        hash_of_nonce(nonce),
    )


def event(
    name: str = "e1",
    payload: bytes = b"payload",
    *,
    event_type: str = "type",
    time: int | None = None,
    correlation: str = "",
    causation: str = "",
    trace: str = "",
) -> NewEvent:
    return NewEvent(JournalEventId(name), event_type, payload, time, correlation, causation, trace)


def message(
    name: str = "o1",
    payload: bytes = b"message",
    *,
    event: str = "",
    destination: str = "d",
    key: str = "",
    available: int | None = None,
) -> NewOutboxMessage:
    return NewOutboxMessage(OutboxId(name), event, destination, key, payload, available)


def projection(name: str = "p1", value: bytes = b"value") -> NewProjection:
    return NewProjection(ProjectionId(name), value)


def commit(
    name: str = "m1",
    *,
    stream: str = "s",
    credential: Credential | None = None,
    expected: int = 0,
    events: Sequence[NewEvent] = (),
    messages: Sequence[NewOutboxMessage] = (),
    projections: Sequence[NewProjection] = (),
    reply: bytes = b"",
) -> Commit:
    return Commit(
        MessageId(name),
        StreamId(stream),
        credential or credential_of(stream),
        expected,
        events,
        messages,
        projections,
        reply,
    )
