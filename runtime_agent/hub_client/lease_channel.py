"""A connection on which a client sends what must arrive, whether it blocks or not: leases, and the journal.

Each of the two has one of its own, so that a renewal waits behind nothing; it is used from threads, so that
a renewal does not wait for an event loop. A connection on which the hub was not reached is replaced by a
fresh one at the next call: one that hangs half open is left behind, and a hub that comes back is found at
once, not after gRPC's growing wait. No call is sent twice in here; whoever calls has a deadline to keep.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from runtime_agent.hub_client.errors import HubCallError
from synchub.channel import HubAddress, Refusal, dial, refusal_from_error
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven, CredentialSource, source_of
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class LeaseStubs:
    """The services that these calls need, on one connection."""

    leases: LeaseServiceStub
    journal: JournalServiceStub
    hub: HubServiceStub


@dataclass(frozen=True, slots=True)
class Call:
    """One unary call, ready to be sent on whichever connection there is then.

    ``undo``, where given, makes the call that is sent if the answer comes when nobody wants it any more. A
    request may hold a nonce, so nothing of it is in what is printed.
    """

    block: Callable[[LeaseStubs], Message] = field(repr=False)
    begin: Callable[[LeaseStubs], "grpc.Future[Message]"] = field(repr=False)
    undo: Callable[[Message], "Call"] | None = field(repr=False, default=None)


def unary(
    method: Callable[[LeaseStubs], "grpc.UnaryUnaryMultiCallable[Request, Response]"],
    request: Request,
    *,
    timeout_seconds: float,
    undo: Callable[[Message], Call] | None = None,
) -> Call:
    """Return the call of a method with a request."""

    def block(stubs: LeaseStubs) -> Message:
        return method(stubs)(request, timeout=timeout_seconds)

    def begin(stubs: LeaseStubs) -> "grpc.Future[Message]":
        # A future is only read from, so one of a response is one of a message.
        return method(stubs).future(request, timeout=timeout_seconds)  # type: ignore[return-value]

    return Call(block, begin, undo)


class ClientClosed(HubCallError):
    """The client was closed; no call of it reaches a hub any more."""


class _Connection:
    """A channel with how many calls are on it; a retired one is closed once that is 0."""

    def __init__(self, addresses: tuple[HubAddress, ...], credentials: CredentialSource) -> None:
        self.channel = dial(addresses, credentials=credentials, retries=False)
        self.stubs = LeaseStubs(
            LeaseServiceStub(self.channel), JournalServiceStub(self.channel), HubServiceStub(self.channel)
        )
        self.call_count = 0
        self.is_retired = False


class LeaseChannel:
    """Lends a connection for each call. Safe to share among threads and loops; close it after use."""

    def __init__(
        self, addresses: tuple[HubAddress, ...], *, credentials: CredentialsGiven = NO_CREDENTIALS
    ) -> None:
        """Raises: CredentialsError."""
        self._addresses = addresses
        self.credentials = source_of(credentials)
        """What it shows and trusts."""
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._is_closed = False
        self.engine: str | None = None
        """The storage engine that the hub named, once it was asked."""

    def close(self) -> None:
        """End what is being called, and refuse what comes. Idempotent."""
        with self._lock:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.channel.close()

    def call(self, call: Call) -> Message:
        """Send a call and wait for its answer. Raises: HubCallError."""
        with self.lent() as stubs:
            return call.block(stubs)

    def send_unheeded(self, call: Call) -> None:
        """Send a call on a thread of its own, and heed neither its answer nor its failure."""

        def send() -> None:
            try:
                self.call(call)
            except HubCallError:
                pass  # what it was to end ends by itself, a little later

        threading.Thread(target=send, name="lease-undo", daemon=True).start()

    @property
    def is_ready(self) -> bool:
        """Whether the next call goes out without blocking this thread."""
        return self._connection is not None or len(self._addresses) == 1

    def prepare(self) -> None:
        """Dial where there is no connection; blocks while names are resolved. Raises: ClientClosed."""
        self._give_back(self._borrow())

    @contextmanager
    def lent(self) -> Iterator[LeaseStubs]:
        """Lend the connection for one call, whose errors become ``HubCallError``.

        Blocks as ``prepare`` does.
        """
        connection = self._borrow()
        try:
            yield connection.stubs
        except grpc.RpcError as error:
            refusal = refusal_from_error(error)
            if refusal.is_connection_loss or refusal.code is grpc.StatusCode.UNAVAILABLE:
                # Also where a hub says that it stops: there may be another one.
                self._retire(connection)
            raise self._error(refusal) from error
        except (grpc.FutureCancelledError, ValueError) as error:
            # What gRPC says of a channel that was closed by another thread.
            raise self._error(Refusal(grpc.StatusCode.CANCELLED, "the call was cancelled")) from error
        finally:
            self._give_back(connection)

    def _error(self, refusal: Refusal) -> HubCallError:
        if self._is_closed and refusal.is_connection_loss:
            return ClientClosed(refusal, self._addresses)
        return HubCallError(refusal, self._addresses)

    def _borrow(self) -> _Connection:
        while True:
            with self._lock:
                if self._is_closed:
                    raise self._error(Refusal(grpc.StatusCode.CANCELLED, "the client is closed"))
                if self._connection is not None:
                    self._connection.call_count += 1
                    return self._connection
            # Not with the lock held: where names are to be resolved, others would wait for them too.
            self._install(_Connection(self._addresses, self.credentials))

    def _install(self, fresh: _Connection) -> None:
        with self._lock:
            is_wanted = self._connection is None and not self._is_closed
            if is_wanted:
                self._connection = fresh
        if not is_wanted:
            fresh.channel.close()

    def _retire(self, connection: _Connection) -> None:
        with self._lock:
            connection.is_retired = True
            if self._connection is connection:
                self._connection = None

    def _give_back(self, connection: _Connection) -> None:
        with self._lock:
            connection.call_count -= 1
            is_over = connection.is_retired and connection.call_count == 0
        if is_over:
            connection.channel.close()
