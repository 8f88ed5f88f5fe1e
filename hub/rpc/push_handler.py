"""The stream on which runtimes push: requests are pipelined, answers come in their order.

Two loops a stream: one reads, checks and queues batches for the writer, the other waits for what became
of each and answers. Both are bounded, so a hub that is behind stops reading, and HTTP/2 flow control
stops the runtime. A refusal that ends the stream takes its place among the answers: what was queued
before it is answered first, what comes after it is read and thrown away.

A hub project above its rates is slowed: its batch is stored, the answer says how long to wait, and for
so long nothing more of the stream is read, whatever the client makes of it.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import grpc.aio

from hub.core.errors import HubStopping, Refusal
from hub.core.ingest import PushBatch
from hub.core.limits import Limits
from hub.core.values import Caller
from hub.rpc.codec_push import (
    batch_from_proto,
    outcome_to_proto,
    reconcile_from_proto,
    reconciled_to_proto,
)
from hub.rpc.codec_time import duration_to_proto
from hub.rpc.identity import caller_of
from hub.rpc.loop_turns import LoopTurns
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck
from hub.rpc.streams import CONNECTION_LOST, BidirectionalStream
from hub.service.ingest import Ingest, PushOutcome
from hub.service.rates import HubRates
from hub.service.reconcile import Reconcile
from synchub.v1.sync_service_pb2 import (
    PushEventsRequest,
    PushEventsResponse,
    ReconcileRunsRequest,
    ReconcileRunsResponse,
)

PushContext = grpc.aio.ServicerContext[PushEventsRequest, PushEventsResponse]
ReconcileContext = grpc.aio.ServicerContext[ReconcileRunsRequest, ReconcileRunsResponse]


class PushHandler:
    """Serves PushEvents and ReconcileRuns."""

    def __init__(
        self,
        *,
        ingest: Ingest,
        reconcile: Reconcile,
        rates: HubRates,
        open_streams: OpenStreams,
        limits: Limits,
    ) -> None:
        """Bind the use cases, and how much may come at a time."""
        self._ingest = ingest
        self._reconcile = reconcile
        self._rates = rates
        self._turns = LoopTurns()
        self._open_streams = open_streams
        self._limits = limits

    async def push_events(self, context: PushContext) -> None:
        """Serve one stream to its end."""
        stream = BidirectionalStream(
            self._open_streams,
            context,
            method="PushEvents",
            error_response=lambda status: PushEventsResponse(error=status),
        )
        async with stream:
            await _PushStream(
                stream,
                context,
                ingest=self._ingest,
                rates=self._rates,
                turns=self._turns,
                limits=self._limits,
            ).serve()

    async def reconcile_runs(
        self, request: ReconcileRunsRequest, context: ReconcileContext
    ) -> ReconcileRunsResponse:
        """Serve one reconcile."""
        check = RequestCheck(self._limits)
        caller = caller_of(context, request.hub_project, check=check, runtime_id=request.runtime_id)
        check.refuse_violations()
        generation, runs = await self._reconcile.reconcile(
            caller, reconcile_from_proto(request, self._limits)
        )
        return reconciled_to_proto(generation, runs)


@dataclass(frozen=True, slots=True)
class _Unanswered:
    """A batch that the writer has, the run that its answer names, and when the next batch may come."""

    project_id: str
    run_id: str
    future: asyncio.Future[PushOutcome]
    clear_at_seconds: float


_END: Final = None
"""In the place of an answer: nothing more comes."""


class _PushStream:
    """One open stream: its two loops and the queue between them."""

    def __init__(
        self,
        stream: BidirectionalStream[PushEventsRequest, PushEventsResponse],
        context: PushContext,
        *,
        ingest: Ingest,
        rates: HubRates,
        turns: LoopTurns,
        limits: Limits,
    ) -> None:
        self._stream = stream
        self._context = context
        self._ingest = ingest
        self._rates = rates
        self._turns = turns
        self._limits = limits
        self._clear_at_seconds = 0.0
        """Until then the stream is not read."""
        self._no_pause = asyncio.Event()
        """Set once nothing more is taken: then it is read to its end."""
        self._answers: asyncio.Queue[_Unanswered | Refusal | None] = asyncio.Queue(limits.stream_answers_max)
        self._is_refused = False
        self._is_draining = False
        stream.on_drain = self._drain
        stream.on_ending = self._no_pause.set

    async def serve(self) -> None:
        """Read and answer until the client ends or is gone, or a refusal ends the stream."""
        answering = asyncio.create_task(self._answer_all())
        try:
            while True:
                await self._pause(self._rates.remaining_seconds(self._clear_at_seconds))
                try:
                    request = await self._stream.read()
                except Refusal as refusal:
                    await self._refuse_in_order(refusal)
                    continue
                if request is None:
                    break
                if not self._is_refused:
                    await self._queue(request)
            await self._answers.put(_END)
            await answering
        finally:
            answering.cancel()
            while not self._answers.empty():
                _forget(self._answers.get_nowait())

    def _drain(self) -> None:
        """Take no more batches; end once what is queued is answered."""
        self._is_refused = True
        self._is_draining = True
        if self._answers.empty():
            # Wakes the answering loop; where it is busy, it looks after each answer.
            self._answers.put_nowait(HubStopping())

    async def _queue(self, request: PushEventsRequest) -> None:
        """Hand one batch to the writer, or refuse it in its turn."""
        try:
            check = RequestCheck(self._limits)
            caller = caller_of(
                self._context,
                request.hub_project,
                check=check,
                runtime_id=request.runtime_id,
                project_id=request.project_id,
                run_id=request.run_id,
            )
            check.refuse_violations({"projectId": request.project_id, "runId": request.run_id})
            bytes_count = request.ByteSize()
            await self._turns.take(caller.hub_project, bytes_count)
            batch = batch_from_proto(request, self._limits, bytes_count=bytes_count)
            answer = await self._submit(caller, batch)
        except Refusal as refusal:
            await self._refuse_in_order(refusal)
        else:
            if answer is not None:
                await self._answers.put(answer)

    async def _submit(self, caller: Caller, batch: PushBatch) -> _Unanswered | None:
        """Hand a batch to the writer once those before it are paid; None where the stream ends before."""
        cost = {"event_count": len(batch.events), "bytes_count": batch.bytes_count}
        pace = self._rates.pace(caller.hub_project, **cost)
        future: asyncio.Future[PushOutcome] | None = None
        try:
            if pace.wait_seconds and not await self._pause(pace.wait_seconds):
                return None
            future = await self._ingest.submit(caller, batch)
        finally:
            if future is None:
                self._rates.give_back(caller.hub_project, **cost)
        self._clear_at_seconds = pace.clear_at_seconds
        return _Unanswered(batch.project_id, batch.run_id, future, pace.clear_at_seconds)

    async def _pause(self, seconds: float) -> bool:
        """Wait so long, and return whether the stream still takes batches then; at once where it ends."""
        if seconds and not self._no_pause.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._no_pause.wait()
        return not self._no_pause.is_set()

    async def _refuse_in_order(self, refusal: Refusal) -> None:
        """End the stream with a refusal that answers the request just read; the first one counts."""
        if not self._is_refused:
            self._is_refused = True
            self._clear_at_seconds = 0.0
            await self._answers.put(refusal)

    async def _answer_all(self) -> None:
        """Answer in order until nothing more comes; what is behind a refusal is not answered."""
        is_over = False
        while (answer := await self._answers.get()) is not _END:
            if is_over:
                _forget(answer)
                continue
            refusal: Refusal | None = None
            try:
                await self._answer(answer)
                if self._is_draining and self._answers.empty():
                    refusal = HubStopping()
            except Refusal as raised:
                refusal = raised
            except CONNECTION_LOST:
                is_over = True
            if refusal is not None:
                is_over = True
                self._is_refused = True
                self._stream.end(refusal)

    async def _answer(self, answer: _Unanswered | Refusal) -> None:
        if isinstance(answer, Refusal):
            raise answer
        outcome = await answer.future
        response = outcome_to_proto(answer.project_id, answer.run_id, outcome=outcome)
        retry_seconds = self._rates.remaining_seconds(answer.clear_at_seconds)
        if retry_seconds:
            response.retry_delay.CopyFrom(duration_to_proto(retry_seconds))
        await self._stream.write(response)


def _forget(answer: _Unanswered | Refusal | None) -> None:
    """Nobody waits for this any more; the writer finishes it all the same."""
    if isinstance(answer, _Unanswered):
        answer.future.add_done_callback(_retrieve)


def _retrieve(future: asyncio.Future[PushOutcome]) -> None:
    """Look at what a future raised, so that it is not reported as forgotten."""
    if not future.cancelled():
        future.exception()
