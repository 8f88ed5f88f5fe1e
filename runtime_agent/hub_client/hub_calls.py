"""The agent's calls to a hub, typed; everything of gRPC that the link needs is in here.

Every failure of a call or a stream is a ``HubCallError``. A stream's end carries no meaning of its own:
a refusal is first said in band, and whatever else ends a stream means "connect again".
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Generic, TypeVar, cast

import grpc
import grpc.aio
from google.rpc import status_pb2

from runtime_agent import limits
from runtime_agent.core.push_steps import PushAnswer
from runtime_agent.core.reconcile import ReconciledRun
from runtime_agent.core.values import FetchedEvent, RunKey, RunState
from runtime_agent.hub_client import codec
from runtime_agent.hub_client.codec import Heartbeat, HeartbeatAnswer, HubFacts, PushSender
from runtime_agent.hub_client.errors import HubCallError
from synchub.channel import (
    UNARY_SECONDS_MAX,
    HubAddress,
    Refusal,
    dial_aio,
    refusal_from_error,
    refusal_from_status,
)
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven
from synchub.v1 import hub_service_pb2, sync_service_pb2
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest, HeartbeatResponse
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_service_pb2 import PushEventsResponse
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

Request = TypeVar("Request")
Response = TypeVar("Response", PushEventsResponse, HeartbeatResponse)

_PUSH_METHOD: Final = "/synchub.v1.SyncService/PushEvents"


@contextmanager
def translated(addresses: tuple[HubAddress, ...]) -> Iterator[None]:
    """Turn what gRPC raises into ``HubCallError``; a cancelled task stays cancelled."""
    try:
        yield
    except grpc.RpcError as error:
        raise HubCallError(refusal_from_error(error), addresses) from error
    except (asyncio.InvalidStateError, grpc.aio.UsageError) as error:
        # What a call says that ended while it was being used ("RPC already finished.").
        raise HubCallError(Refusal(grpc.StatusCode.UNAVAILABLE, "the stream ended"), addresses) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Not this task but the call was cancelled: by the other end, or by a channel that closes.
        raise HubCallError(Refusal(grpc.StatusCode.CANCELLED, "the call was cancelled"), addresses) from error


class HubStream(Generic[Request, Response]):
    """One bidirectional stream in read and write style; ``cancel`` it when it is no longer read."""

    def __init__(
        self, call: "grpc.aio.StreamStreamCall[Request, Response]", addresses: tuple[HubAddress, ...]
    ) -> None:
        self._call: grpc.aio.StreamStreamCall[Request, Response] = call
        self._addresses = addresses

    async def send(self, request: Request) -> None:
        """Write one request; waits while the hub takes no more. Raises: HubCallError."""
        with translated(self._addresses):
            try:
                await self._call.write(request)
            except asyncio.InvalidStateError:
                # The call has ended ("RPC already finished."); its status says why.
                await self._raise_status()
                raise

    async def receive(self) -> Response:
        """Return the next response; its ``error`` and the stream's end are raised as HubCallError."""
        with translated(self._addresses):
            read = await self._call.read()
        if read is grpc.aio.EOF:
            raise HubCallError(
                Refusal(grpc.StatusCode.UNAVAILABLE, "the hub ended the stream"), self._addresses
            )
        response = cast(Response, read)
        if response.HasField("error"):
            said: status_pb2.Status = response.error
            raise HubCallError(refusal_from_status(said), self._addresses, is_in_band=True)
        return response

    async def half_close(self) -> None:
        """Say that nothing more will be sent. Raises: HubCallError."""
        with translated(self._addresses):
            await self._call.done_writing()

    async def _raise_status(self) -> None:
        """Raise the status of a call that has ended, unless that is OK."""
        if not self._call.done():
            return
        code = await self._call.code()
        if code is not grpc.StatusCode.OK:
            trailing = await self._call.trailing_metadata()
            details = await self._call.details()
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)

    def cancel(self) -> None:
        """End the stream. Idempotent."""
        self._call.cancel()


class PushStream:
    """The push stream: serialised batches in, answers out, in the same order."""

    def __init__(self, stream: HubStream[bytes, PushEventsResponse]) -> None:
        self._stream = stream

    async def send(self, message: bytes) -> None:
        """Write one serialised request. Raises: HubCallError."""
        await self._stream.send(message)

    async def receive(self) -> PushAnswer:
        """Return the answer to the oldest unanswered batch. Raises: HubCallError."""
        return codec.push_answer_from_proto(await self._stream.receive())

    def cancel(self) -> None:
        """End the stream; what is unanswered is unknown. Idempotent."""
        self._stream.cancel()


class PresenceStream:
    """The heartbeat stream of one instance."""

    def __init__(self, stream: HubStream[HeartbeatRequest, HeartbeatResponse], sender: PushSender) -> None:
        self._stream = stream
        self._sender = sender

    async def send(self, heartbeat: Heartbeat) -> None:
        """Write one heartbeat. Raises: HubCallError."""
        await self._stream.send(codec.heartbeat_to_proto(self._sender, heartbeat))

    async def receive(self) -> HeartbeatAnswer:
        """Return the next answer or notice. Raises: HubCallError."""
        return codec.heartbeat_answer_from_proto(await self._stream.receive())

    async def half_close(self) -> None:
        """Say that nothing more will be sent, after a goodbye. Raises: HubCallError."""
        await self._stream.half_close()

    def cancel(self) -> None:
        """End the stream. Idempotent."""
        self._stream.cancel()


class HubConnection:
    """A channel to one of the hubs and the calls on it; ``close`` it after use."""

    def __init__(self, channel: grpc.aio.Channel, addresses: tuple[HubAddress, ...]) -> None:
        self._channel = channel
        self._addresses = addresses
        self._hub = HubServiceStub(channel)
        self._sync = SyncServiceStub(channel)
        self._presence = PresenceServiceStub(channel)
        self._push: grpc.aio.StreamStreamMultiCallable[bytes, PushEventsResponse] = channel.stream_stream(
            _PUSH_METHOD,
            None,  # the batches are serialised already
            PushEventsResponse.FromString,
        )

    @classmethod
    async def dial(
        cls, addresses: Sequence[HubAddress], *, credentials: CredentialsGiven = NO_CREDENTIALS
    ) -> "HubConnection":
        """Return a connection of its own; nothing is connected before the first call.

        A source of credentials looks at its files now. Raises: CredentialsError where it is no source yet.
        """
        return cls(await dial_aio(addresses, credentials=credentials), tuple(addresses))

    async def close(self) -> None:
        """Close the channel and end what is open on it. Idempotent."""
        await self._channel.close()

    async def wait_until_lost(self) -> None:
        """Return once the connection, up now, goes away in a way that this machine can see."""
        with translated(self._addresses):
            while True:
                state = self._channel.get_state()
                if state is not grpc.ChannelConnectivity.READY:
                    return
                await self._channel.wait_for_state_change(state)

    # --- unary calls ---

    async def get_facts(self) -> HubFacts:
        """Return what the hub says of itself. Raises: HubCallError."""
        with translated(self._addresses):
            response = await self._hub.GetHubInfo(
                hub_service_pb2.GetHubInfoRequest(), timeout=UNARY_SECONDS_MAX
            )
        return codec.hub_facts_from_proto(response)

    async def reconcile_runs(
        self, sender: PushSender, runs: Sequence[RunState], *, known_hub_generation: str
    ) -> tuple[str, dict[RunKey, ReconciledRun]]:
        """Return the hub's generation and its view of each run. Makes the instance the current one.

        Raises: HubCallError.
        """
        request = codec.reconcile_request(sender, runs, known_hub_generation=known_hub_generation)
        with translated(self._addresses):
            response = await self._sync.ReconcileRuns(request, timeout=limits.RECONCILE_SECONDS_MAX)
        views = (codec.reconciled_run_from_proto(each) for each in response.runs)
        return response.hub_generation, {view.run: view for view in views}

    async def fetch_events(
        self, sender: PushSender, run: RunKey, *, after_sequence: int, limit: int
    ) -> tuple[FetchedEvent, ...]:
        """Return the next events of a run that the hub has, ascending; fewer than ``limit`` where large.

        Raises: HubCallError.
        """
        request = sync_service_pb2.ListEventsRequest(
            hub_project=sender.identity.hub_project,
            project_id=run.project_id,
            run_id=run.run_id,
            after_sequence=after_sequence,
            page_size=limit,
        )
        with translated(self._addresses):
            response = await self._sync.ListEvents(request, timeout=UNARY_SECONDS_MAX)
        return tuple(codec.fetched_event_from_proto(each) for each in response.events)

    # --- streams ---

    def open_push(self) -> PushStream:
        """Open the push stream. It fails at its first use, never here."""
        return PushStream(HubStream(self._push(), self._addresses))

    def open_presence(self, sender: PushSender) -> PresenceStream:
        """Open the heartbeat stream. It fails at its first use, never here."""
        return PresenceStream(HubStream(self._presence.Heartbeat(), self._addresses), sender)
