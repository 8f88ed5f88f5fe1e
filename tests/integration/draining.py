"""Everybody who is busy with a hub when it is asked to stop, and what they were told."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Final, NewType, Protocol

import grpc
import grpc.aio
from google.rpc import status_pb2

from synchub.channel import refusal_from_error, refusal_from_status
from synchub.v1.journal_service_pb2 import CommitRequest, NewJournalEvent, WatchJournalRequest
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import (
    AcquireLeaseRequest,
    GetResourceStateRequest,
    LeaseRenewal,
    RenewLeasesRequest,
    RenewLeasesResponse,
    WatchLeasesRequest,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest, HeartbeatResponse, WatchRuntimesRequest
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import (
    PushEventsRequest,
    PushEventsResponse,
    WatchAlertsRequest,
    WatchEventsRequest,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.leasing import nonce, seconds
from tests.integration.hub_process import HUB_PROJECT

PUSHERS: Final = 60
BEATERS: Final = 40
RENEWERS: Final = 20
COMMITTERS: Final = 20
WAITERS: Final = 10
WATCHERS_EACH: Final = 14
STREAMS: Final = PUSHERS + BEATERS + RENEWERS + WAITERS + 5 * WATCHERS_EACH
BATCH_EVENTS: Final = 5
IN_FLIGHT: Final = 4

RunId = NewType("RunId", str)


class Readable(Protocol):
    """A call with answers."""

    def read(self) -> Awaitable[object]:
        """Wait for the next answer, or the end."""


class Conversation(Readable, Protocol):
    """A call with requests as well."""

    def done_writing(self) -> Awaitable[None]:
        """Close the own side."""


class Crowd:
    """All of them, over one channel; ``ends`` counts how their calls ended, by the reason told."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._sync = SyncServiceStub(channel)
        self._presence = PresenceServiceStub(channel)
        self._lease = LeaseServiceStub(channel)
        self._journal = JournalServiceStub(channel)
        self.acknowledged: dict[RunId, int] = {}
        self.committed: dict[str, int] = {}
        self.answered: Counter[str] = Counter()
        self._heard: set[str] = set()
        """Who was answered at least once."""
        self.ends: Counter[str] = Counter()
        self.told_in_band = 0
        self.is_stubborn = False
        """Whether nobody closes the own side of a stream that was refused in band."""
        self._tasks: list[asyncio.Task[None]] = []
        self._is_held = asyncio.Event()
        """Whether the lease is held for which others wait."""

    def begin(self) -> None:
        """Set them all to work, until the hub ends their calls."""
        watches: tuple[Callable[[], Readable], ...] = (
            lambda: self._sync.WatchEvents(WatchEventsRequest(hub_project=HUB_PROJECT)),
            lambda: self._sync.WatchAlerts(WatchAlertsRequest(hub_project=HUB_PROJECT)),
            lambda: self._presence.WatchRuntimes(WatchRuntimesRequest(hub_project=HUB_PROJECT)),
            lambda: self._lease.WatchLeases(WatchLeasesRequest(hub_project=HUB_PROJECT)),
            lambda: self._journal.WatchJournal(WatchJournalRequest(hub_project=HUB_PROJECT)),
        )
        works = [
            *(self._push(RunId(f"r{n}")) for n in range(PUSHERS)),
            *(self._beat(f"beats {n}") for n in range(BEATERS)),
            *(self._renew(f"renewed {n}") for n in range(RENEWERS)),
            *(self._commit(f"stream {n}") for n in range(COMMITTERS)),
            *(self._wait(n) for n in range(WAITERS)),
            *(
                self._watch(f"watch {kind} {n}", open_watch)
                for kind, open_watch in enumerate(watches)
                for n in range(WATCHERS_EACH)
            ),
        ]
        self._tasks = [asyncio.ensure_future(self._until_ended(work)) for work in works]

    async def is_at_work(self) -> bool:
        """Whether the hub has answered everybody, and knows of everybody who waits."""
        if len(self._heard) < STREAMS - WAITERS + COMMITTERS:
            return False
        request = GetResourceStateRequest(hub_project=HUB_PROJECT, resource="waited for")
        return len((await self._lease.GetResourceState(request)).waiters) == WAITERS

    async def wait(self) -> None:
        """Wait until all of them have seen their calls end."""
        await asyncio.gather(*self._tasks)

    async def _until_ended(self, work: Coroutine[None, None, str]) -> None:
        try:
            self.ends[await work] += 1
        except grpc.RpcError as error:
            refusal = refusal_from_error(error)
            self.ends[refusal.reason or refusal.code.name] += 1

    async def _push(self, run_id: RunId) -> str:
        call = self._sync.PushEvents()
        room = asyncio.Semaphore(IN_FLIGHT)

        async def send() -> None:
            # The call may end meanwhile: whoever reads finds out.
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                for first in count(1, BATCH_EVENTS):
                    await room.acquire()
                    events = [
                        SyncEvent(sequence=first + n, event_type="line", payload=b"x" * 200)
                        for n in range(BATCH_EVENTS)
                    ]
                    await call.write(
                        PushEventsRequest(
                            hub_project=HUB_PROJECT,
                            project_id="p",
                            run_id=run_id,
                            runtime_id="rt",
                            events=events,
                        )
                    )

        sending = asyncio.ensure_future(send())
        try:
            while isinstance(answer := await call.read(), PushEventsResponse):
                if answer.HasField("error"):
                    return await self._leave(call, answer.error)
                assert not answer.conflicts
                self.acknowledged[run_id] = answer.cursor
                self.answered["push"] += 1
                self._heard.add(f"push {run_id}")
                room.release()
        finally:
            sending.cancel()
        return "OK"

    async def _beat(self, runtime_id: str) -> str:
        call = self._presence.Heartbeat()
        request = HeartbeatRequest(hub_project=HUB_PROJECT, runtime_id=runtime_id, instance_id="i")
        return await self._in_turns(call, lambda: call.write(request), "heartbeat", runtime_id)

    async def _renew(self, resource: str) -> str:
        held = await self._lease.AcquireLease(_wanted(resource, "holder"))
        renewal = LeaseRenewal(credential=held.credential, ttl=seconds(600))
        call = self._lease.RenewLeases()
        request = RenewLeasesRequest(hub_project=HUB_PROJECT, renewals=[renewal])
        return await self._in_turns(call, lambda: call.write(request), "renewal", resource)

    async def _in_turns(
        self,
        call: Conversation,
        ask: Callable[[], Awaitable[object]],
        kind: str,
        name: str,
    ) -> str:
        """Ask and be answered, again and again."""
        while True:
            with suppress(asyncio.InvalidStateError):
                await ask()
            answer = await call.read()
            if not isinstance(answer, HeartbeatResponse | RenewLeasesResponse):
                return "OK"
            if answer.HasField("error"):
                return await self._leave(call, answer.error)
            self.answered[kind] += 1
            self._heard.add(name)

    async def _leave(self, call: Conversation, status: status_pb2.Status) -> str:
        """Close the own side of a stream that was refused in band, and see it end."""
        self.told_in_band += 1
        if not self.is_stubborn:
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                await call.done_writing()
        with suppress(grpc.RpcError):
            while await call.read() is not grpc.aio.EOF:
                pass
        return refusal_from_status(status).reason

    async def _commit(self, stream_id: str) -> str:
        held = await self._lease.AcquireLease(_wanted(stream_id, "holder"))
        for revision in count():
            event = NewJournalEvent(event_id=f"{stream_id} {revision}", event_type="x", payload=b"y" * 100)
            answer = await self._journal.Commit(
                CommitRequest(
                    hub_project=HUB_PROJECT,
                    message_id=f"{stream_id} {revision}",
                    stream_id=stream_id,
                    credential=held.credential,
                    expected_revision=revision,
                    events=[event],
                )
            )
            self.committed[stream_id] = answer.revision
            self.answered["commit"] += 1
            self._heard.add(stream_id)
        raise AssertionError("it counts for ever")

    async def _wait(self, n: int) -> str:
        request = _wanted("waited for", f"waiter {n}")
        if n > 0:
            await self._is_held.wait()
            request.wait_timeout.seconds = 500
        else:
            await self._lease.AcquireLease(request)
            self._is_held.set()
            request = _wanted("waited for", "another")
            request.wait_timeout.seconds = 500
        await self._lease.AcquireLease(request)
        return "OK"

    async def _watch(self, name: str, open_watch: Callable[[], Readable]) -> str:
        call = open_watch()
        while await call.read() is not grpc.aio.EOF:
            self.answered["watch"] += 1
            self._heard.add(name)
        return "OK"


def _wanted(resource: str, holder_id: str) -> AcquireLeaseRequest:
    return AcquireLeaseRequest(
        hub_project=HUB_PROJECT,
        resource=resource,
        runtime_id="rt",
        holder_id=holder_id,
        nonce=nonce(f"{holder_id}-{resource}".replace(" ", "-")),
        ttl=seconds(600),
    )
