"""A caller of one hub project that does something of everything, and what it was told, made comparable.

What no two runs can have in common (times, ids that the hub draws, ports) is left out; all else counts, byte
for byte.
"""

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, NamedTuple, Self

import grpc
from google.protobuf.message import Message

from hub.core.permissions import PERMISSIONS
from synchub.channel import refusal_from_error
from synchub.v1.alert_pb2 import Alert
from synchub.v1.sync_service_pb2 import ListAlertsRequest, ListAlertsResponse
from tests.contract.every_method import Method, method_named

CALL_SECONDS_MAX: Final = 30.0
DRAWN: Final = frozenset(
    (
        "hub_generation",
        "claim_id",
        "token_id",
        "bearer_token",
        "next_page_token",
        "peer",
        "waited",
        "alert_id",
    )
)
"""Fields that are drawn by the hub, measured, or made of such."""
ORDERED_BY_DRAWN: Final = frozenset(("alerts", "tokens"))
"""Lists in the order of such ids."""
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)?")

Requests = Sequence[Message]
Metadata = tuple[tuple[str, str | bytes], ...]


class Step(NamedTuple):
    """One call that a tenant makes."""

    method: str
    requests: "Callable[[Tenant], Requests]"


class Told(NamedTuple):
    """How one call was answered, comparable: answers as text, then the refusal or ""."""

    method: str
    answers: tuple[str, ...]
    refusal: str


@dataclass
class Tenant:
    """A hub project as its callers see it."""

    name: str
    channel: grpc.Channel
    credentials: Mapping[str, Metadata]
    """What each role shows; empty where nothing is asked for."""
    answers: dict[str, Message] = field(default_factory=dict)
    """The last answer of each method."""
    asked: list[tuple[Method, Requests]] = field(default_factory=list)
    """Every call that was made, as it was."""

    @property
    def project(self) -> str:
        return f"{self.name}-p"

    def last(self, method: str, kind: type[Message]) -> Message:
        """The last answer of a method; an empty one where there was none."""
        return self.answers.get(method, kind())

    def do(self, step: Step) -> Told:
        """Make a call, and remember it and its answer."""
        method, requests = method_named(step.method), step.requests(self)
        self.asked.append((method, requests))
        return self.send(method, requests)

    def send(self, method: Method, requests: Requests) -> Told:
        """Make a call."""
        told, answers = self.send_as(self.shown(method), method, requests)
        if answers:
            self.answers[method.name] = answers[-1]
        return told

    def send_as(
        self, metadata: Metadata, method: Method, requests: Requests
    ) -> tuple[Told, Sequence[Message]]:
        """Make a call, showing this."""
        answers: list[Message] = []
        refusal = ""
        try:
            if method.is_request_stream:
                both = self.channel.stream_stream(method.path, _bytes_of, method.response_class.FromString)
                answers += both(iter(requests), metadata=metadata, timeout=CALL_SECONDS_MAX)
            elif method.is_response_stream:
                many = self.channel.unary_stream(method.path, _bytes_of, method.response_class.FromString)
                answers += many(requests[0], metadata=metadata, timeout=CALL_SECONDS_MAX)
            else:
                one = self.channel.unary_unary(method.path, _bytes_of, method.response_class.FromString)
                answers.append(one(requests[0], metadata=metadata, timeout=CALL_SECONDS_MAX))
        except grpc.RpcError as error:
            refusal = comparable_refusal(error)
        return Told(method.name, tuple(comparable(each) for each in answers), refusal), answers

    def alerts(self) -> Sequence[Alert]:
        """All alerts of the hub project."""
        method = method_named("SyncService/ListAlerts")
        _, answers = self.send_as(self.shown(method), method, [ListAlertsRequest(hub_project=self.name)])
        return [alert for each in answers if isinstance(each, ListAlertsResponse) for alert in each.alerts]

    def shown(self, method: Method) -> Metadata:
        """What a caller shows who may make the call."""
        if not self.credentials:
            return ()
        roles = {role.value for role in PERMISSIONS[method.name]}
        return next(metadata for role, metadata in self.credentials.items() if role in roles)


def one(method: str, make: Callable[[Tenant], Message]) -> Step:
    """A step that sends one request."""
    return Step(method, lambda tenant: [make(tenant)])


class Watcher:
    """Listens to a watch in a thread of its own."""

    def __init__(self, tenant: Tenant, method: Method, request: Message) -> None:
        call = tenant.channel.unary_stream(method.path, _bytes_of, method.response_class.FromString)
        self._call = call(request, metadata=tenant.shown(method), timeout=CALL_SECONDS_MAX)
        self.heard: list[Message] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._call.cancel()
        self._thread.join()

    def until(self, is_there: Callable[[Sequence[Message]], bool]) -> Sequence[Message]:
        """Wait until the answers have something, and return all of them."""
        with self._changed:
            found = self._changed.wait_for(lambda: is_there(self.heard), timeout=CALL_SECONDS_MAX)
            assert found, f"it was not heard of, but {self.heard}"
            return tuple(self.heard)

    def _listen(self) -> None:
        try:
            for answer in self._call:
                with self._changed:
                    self.heard.append(answer)
                    self._changed.notify_all()
        except grpc.RpcError:
            pass  # it was left


def copied(message: Message) -> Message:
    """Return another one that says the same."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def comparable(message: Message) -> str:
    """Return all that a message says and another run says too, as text."""
    copy = copied(message)
    _leave_out_drawn(copy)
    for descriptor, values in copy.ListFields():
        if descriptor.name in ORDERED_BY_DRAWN:
            in_order = sorted(values, key=str)
            copy.ClearField(descriptor.name)
            getattr(copy, descriptor.name).extend(in_order)
    return _TIME.sub("TIME", str(copy))


def comparable_refusal(error: grpc.RpcError) -> str:
    """Return all that a refusal says and that of another run says too, as text."""
    refusal = refusal_from_error(error)
    facts = {key: _TIME.sub("TIME", value) for key, value in sorted(refusal.metadata.items())}
    facts.pop("reference", None)
    message = _TIME.sub("TIME", refusal.message)
    is_delayed = refusal.retry_delay_seconds is not None
    return f"{refusal.code.name} {refusal.reason} {message!r} {facts} {refusal.violations} {is_delayed}"


def _leave_out_drawn(message: Message) -> None:
    for descriptor, value in message.ListFields():
        if descriptor.name in DRAWN and not descriptor.is_repeated:
            message.ClearField(descriptor.name)
            if descriptor.type == descriptor.TYPE_STRING:
                setattr(message, descriptor.name, "drawn")
        elif isinstance(value, Message):
            if value.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
                value.Clear()  # it is still there, which counts
            else:
                _leave_out_drawn(value)
        elif descriptor.is_repeated and descriptor.message_type is not None:
            for each in [] if descriptor.message_type.GetOptions().map_entry else value:
                _leave_out_drawn(each)


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString()
