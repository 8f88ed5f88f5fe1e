"""The journal: commits to 1 and to 64 streams, against the same rows stored by hand.

The callers are this process, the hub another. Each has a stream of its own under a lease, waits for each
answer, and commits one event of 250 bytes and one message for the outbox, which the hub checks (lease,
revision, ids) and makes durable before it answers.
"""

import asyncio
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

import grpc.aio
from google.protobuf.duration_pb2 import Duration

from scripts.benchmarks.disk import disk_sync_rate
from scripts.benchmarks.figures import Figures, median_ratio, p50_ms, p99_ms, progress
from scripts.benchmarks.hub_process import Server, group_counts, running_hub
from scripts.benchmarks.lease_callers import HUB_PROJECT, bare_call_rate
from scripts.benchmarks.raw_journal import RawCommits, RawJournal, opened_raw_journal
from synchub.channel import CHANNEL_OPTIONS
from synchub.v1.journal_service_pb2 import CommitRequest, NewJournalEvent, NewOutboxMessage
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import AcquireLeaseRequest, LeaseCredential
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

STREAMS: Final = 64
EVENT_BYTES: Final = 250
MESSAGE_BYTES: Final = 64
TTL: Final = Duration(seconds=3_600)


@dataclass(frozen=True, slots=True)
class CommitFigures:
    """Commits to so many streams at once: the median rate over the rounds, and times over all of them."""

    streams: int
    commits_per_second: float
    p50_ms: float
    p99_ms: float

    def __str__(self) -> str:
        rate = f"{self.commits_per_second:,.0f} commits/s"
        return f"{rate} (p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms)"


@dataclass(frozen=True, slots=True)
class JournalFigures(Figures):
    """``raw_groups`` is by hand with as many commits a transaction as the hub had in its groups.

    Ratios of rates are larger where the hub is faster; those of processor time, which a busy machine blurs
    less, where it needs more.
    """

    rounds: int
    commits_per_round: int
    one_stream: CommitFigures
    many_streams: CommitFigures
    group_commits: float
    raw_commits_per_second: float
    raw_groups_commits_per_second: float
    bare_calls_of_one_per_second: float
    bare_calls_per_second: float
    disk_syncs_per_second: float
    hub_us_per_commit: float
    hub_us_per_bare_call: float
    raw_groups_us_per_commit: float
    ratio_one_stream_to_raw: float
    ratio_many_streams_to_raw: float
    ratio_many_streams_to_raw_groups: float
    ratio_one_stream_to_bare_calls: float
    ratio_many_streams_to_bare_calls: float
    ratio_many_streams_to_disk_syncs: float
    ratio_processor_to_bare_call: float
    ratio_processor_to_raw_groups: float

    def figures_line(self) -> str:
        """Return what was measured, as one line."""
        return (
            f"figures: 1 stream {self.one_stream}; {self.many_streams.streams} streams {self.many_streams},"
            f" {self.group_commits:.1f} commits a group;"
            f" by hand {self.raw_commits_per_second:,.0f} commits/s one a transaction,"
            f" {self.raw_groups_commits_per_second:,.0f} in groups of that size;"
            f" bare calls of one caller {self.bare_calls_of_one_per_second:,.0f}/s,"
            f" of {self.many_streams.streams} {self.bare_calls_per_second:,.0f}/s;"
            f" disk {self.disk_syncs_per_second:,.0f} syncs/s;"
            f" processor {self.hub_us_per_commit:.0f} µs a commit of {self.many_streams.streams} streams,"
            f" {self.hub_us_per_bare_call:.0f} a bare call,"
            f" {self.raw_groups_us_per_commit:.0f} a commit by hand in groups"
        )

    def ratios_line(self) -> str:
        """Return what it means within this run, as one line."""
        streams = f"{self.many_streams.streams} streams"
        return (
            f"ratios: 1 stream to by hand {self.ratio_one_stream_to_raw:.2f},"
            f" to bare calls {self.ratio_one_stream_to_bare_calls:.2f};"
            f" {streams} to by hand {self.ratio_many_streams_to_raw:.2f},"
            f" to by hand in groups {self.ratio_many_streams_to_raw_groups:.2f},"
            f" to bare calls {self.ratio_many_streams_to_bare_calls:.2f},"
            f" to disk syncs {self.ratio_many_streams_to_disk_syncs:.2f};"
            f" processor of a commit to a bare call {self.ratio_processor_to_bare_call:.2f},"
            f" to by hand in groups {self.ratio_processor_to_raw_groups:.2f}"
        )


@dataclass(slots=True)
class Measured:
    """What the rounds of one run gave."""

    one_rates: list[float] = field(default_factory=list)
    one_seconds: list[float] = field(default_factory=list)
    many_rates: list[float] = field(default_factory=list)
    many_seconds: list[float] = field(default_factory=list)
    group_commits: list[float] = field(default_factory=list)
    many_hub_us: list[float] = field(default_factory=list)
    raw_singles: list[RawCommits] = field(default_factory=list)
    raw_groups: list[RawCommits] = field(default_factory=list)
    bare_one_rates: list[float] = field(default_factory=list)
    bare_rates: list[float] = field(default_factory=list)
    bare_hub_us: list[float] = field(default_factory=list)


class Writer:
    """Commits to one stream, under a lease that lasts for the run."""

    def __init__(self, channel: grpc.aio.Channel, stream_id: str) -> None:
        """Hold nothing yet."""
        self._journal = JournalServiceStub(channel)
        self._leases = LeaseServiceStub(channel)
        self._stream_id = stream_id
        self._credential = LeaseCredential()
        self._revision = 0

    async def acquire(self) -> None:
        """Take the lease on the stream."""
        request = AcquireLeaseRequest(
            hub_project=HUB_PROJECT,
            resource=self._stream_id,
            runtime_id="bench-runtime",
            holder_id=self._stream_id,
            ttl=TTL,
        )
        self._credential = (await self._leases.AcquireLease(request)).credential

    def next_requests(self, count: int) -> list[CommitRequest]:
        """Return the next commits of the stream; to be made before the clock runs."""
        first = self._revision
        self._revision += count
        return [self._request(revision) for revision in range(first, first + count)]

    async def commit(self, requests: Sequence[CommitRequest]) -> list[float]:
        """Commit one after another; return the seconds of each."""
        seconds = []
        for request in requests:
            begin = perf_counter()
            response = await self._journal.Commit(request)
            seconds.append(perf_counter() - begin)
            if response.revision != request.expected_revision + 1 or response.recovered:
                raise SystemExit(f"a commit was not made, so there is nothing to measure: {response}")
        return seconds

    def _request(self, revision: int) -> CommitRequest:
        name = f"{self._stream_id}-{revision}"
        event = NewJournalEvent(
            event_id=f"{name}-event", event_type="step.done", payload=os.urandom(EVENT_BYTES)
        )
        message = NewOutboxMessage(
            outbox_id=f"{name}-message",
            event_id=event.event_id,
            destination="bench-destination",
            payload=os.urandom(MESSAGE_BYTES),
        )
        return CommitRequest(
            hub_project=HUB_PROJECT,
            message_id=f"{name}-commit",
            stream_id=self._stream_id,
            credential=self._credential,
            expected_revision=revision,
            events=[event],
            outbox_messages=[message],
        )


async def bench_journal(*, is_quick: bool) -> JournalFigures:
    """Measure one stream, many streams, and the same rows by hand in turn."""
    rounds, each = (3, 15) if is_quick else (15, 50)
    measured = Measured()
    with tempfile.TemporaryDirectory(prefix="synchub-bench-") as folder_name:
        folder = Path(folder_name)
        stream_ids = [f"stream-{number}" for number in range(STREAMS)]
        async with (
            running_hub(folder) as hub,
            grpc.aio.insecure_channel(hub.address, options=CHANNEL_OPTIONS) as channel,
        ):
            writers = [Writer(channel, stream_id) for stream_id in stream_ids]
            await asyncio.gather(*(writer.acquire() for writer in writers))
            await timed_commits(writers, [writer.next_requests(1) for writer in writers])
            with opened_raw_journal(folder / "raw.db", stream_ids) as raw:
                for number in range(rounds):
                    progress(f"round {number + 1} of {rounds}")
                    await measure_round(channel, writers, hub=hub, raw=raw, each=each, to=measured)
        syncs = disk_sync_rate(folder / "sync", count=500 if is_quick else 3_000)
    return journal_figures(measured, rounds=rounds, commits_per_round=STREAMS * each, syncs=syncs)


async def measure_round(
    channel: grpc.aio.Channel,
    writers: Sequence[Writer],
    *,
    hub: Server,
    raw: RawJournal,
    each: int,
    to: Measured,
) -> None:
    """Measure everything once; by hand the commits are those that the hub had got just before."""
    to.bare_one_rates.append(await bare_call_rate(channel, callers=1, calls_each=each * 4))
    of_one = [writers[0].next_requests(each * 4)]
    seconds, elapsed = await timed_commits(writers[:1], of_one)
    to.one_seconds += seconds
    to.one_rates.append(len(seconds) / elapsed)
    to.raw_singles.append(raw.store(of_one[0], group_commits=1))
    processor_begin = hub.processor_seconds()
    to.bare_rates.append(await bare_call_rate(channel, callers=STREAMS, calls_each=each))
    to.bare_hub_us.append((hub.processor_seconds() - processor_begin) * 1e6 / (STREAMS * each))
    of_each = [writer.next_requests(each) for writer in writers]
    before, processor_begin = await group_counts(hub.pages), hub.processor_seconds()
    seconds, elapsed = await timed_commits(writers, of_each)
    processor_seconds, after = hub.processor_seconds() - processor_begin, await group_counts(hub.pages)
    to.many_hub_us.append(processor_seconds * 1e6 / len(seconds))
    to.many_seconds += seconds
    to.many_rates.append(len(seconds) / elapsed)
    group_commits = (after.commands - before.commands) / (after.groups - before.groups)
    to.group_commits.append(group_commits)
    in_turn = [request for requests in zip(*of_each, strict=True) for request in requests]
    to.raw_groups.append(raw.store(in_turn, group_commits=max(1, round(group_commits))))


async def timed_commits(
    writers: Sequence[Writer], requests: Sequence[Sequence[CommitRequest]]
) -> tuple[list[float], float]:
    """Let writers commit at once; return the seconds of each commit, and of all."""
    begin = perf_counter()
    of_each = await asyncio.gather(
        *(writer.commit(its) for writer, its in zip(writers, requests, strict=True))
    )
    elapsed = perf_counter() - begin
    return [seconds for each in of_each for seconds in each], elapsed


def commit_figures(streams: int, rates: Sequence[float], *, seconds: Sequence[float]) -> CommitFigures:
    """Return what several rounds come to."""
    return CommitFigures(
        streams=streams,
        commits_per_second=statistics.median(rates),
        p50_ms=p50_ms(seconds),
        p99_ms=p99_ms(seconds),
    )


def journal_figures(
    measured: Measured, *, rounds: int, commits_per_round: int, syncs: float
) -> JournalFigures:
    """Return what all rounds come to."""
    many_rates, raw_rates = measured.many_rates, [each.commits_per_second for each in measured.raw_singles]
    raw_group_rates = [each.commits_per_second for each in measured.raw_groups]
    raw_group_us = [each.processor_us for each in measured.raw_groups]
    return JournalFigures(
        rounds=rounds,
        commits_per_round=commits_per_round,
        one_stream=commit_figures(1, measured.one_rates, seconds=measured.one_seconds),
        many_streams=commit_figures(STREAMS, many_rates, seconds=measured.many_seconds),
        group_commits=statistics.median(measured.group_commits),
        raw_commits_per_second=statistics.median(raw_rates),
        raw_groups_commits_per_second=statistics.median(raw_group_rates),
        bare_calls_of_one_per_second=statistics.median(measured.bare_one_rates),
        bare_calls_per_second=statistics.median(measured.bare_rates),
        disk_syncs_per_second=syncs,
        hub_us_per_commit=statistics.median(measured.many_hub_us),
        hub_us_per_bare_call=statistics.median(measured.bare_hub_us),
        raw_groups_us_per_commit=statistics.median(raw_group_us),
        ratio_one_stream_to_raw=median_ratio(measured.one_rates, raw_rates),
        ratio_many_streams_to_raw=median_ratio(many_rates, raw_rates),
        ratio_many_streams_to_raw_groups=median_ratio(many_rates, raw_group_rates),
        ratio_one_stream_to_bare_calls=median_ratio(measured.one_rates, measured.bare_one_rates),
        ratio_many_streams_to_bare_calls=median_ratio(many_rates, measured.bare_rates),
        ratio_many_streams_to_disk_syncs=statistics.median(many_rates) / syncs,
        ratio_processor_to_bare_call=median_ratio(measured.many_hub_us, measured.bare_hub_us),
        ratio_processor_to_raw_groups=median_ratio(measured.many_hub_us, raw_group_us),
    )
