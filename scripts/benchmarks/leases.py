"""Leases: 64 callers that acquire, renew and release, against etcd on the same disk.

The callers are this process, the hub and etcd others. An operation of the hub is durable when it is
answered, each of the three. Of etcd's, acquiring (two calls) and releasing are; a renewal is not. etcd
renews on a stream, so the ratio to it is that of the hub's renewals on a stream too.
"""

import asyncio
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from scripts.benchmarks.disk import disk_sync_rate
from scripts.benchmarks.etcd import EtcdCaller, etcd_version, running_etcd
from scripts.benchmarks.figures import Figures, median_ratio, p50_ms, p99_ms, progress
from scripts.benchmarks.hub_process import Server, running_hub
from scripts.benchmarks.lease_callers import (
    Caller,
    HubCaller,
    StreamingHubCaller,
    Timings,
    bare_call_rate,
    timed_cycles,
    together_renewal_rate,
)
from synchub.channel import CHANNEL_OPTIONS

CALLERS = 64


@dataclass(frozen=True, slots=True)
class OperationFigures:
    """Operations of one kind of callers: the median rate over the rounds, the rest over all of them."""

    operations_per_second: float
    p50_ms: float
    p99_ms: float
    server_us_per_operation: float
    acquire_p50_ms: float
    renew_p50_ms: float
    release_p50_ms: float

    def __str__(self) -> str:
        rate = f"{self.operations_per_second:,.0f} operations/s"
        times = f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms"
        return f"{rate} ({times}, {self.server_us_per_operation:.0f} µs of the server's processor each)"


@dataclass(frozen=True, slots=True)
class LeaseFigures(Figures):
    """``hub`` renews by calls, ``hub_streams`` on streams, a lease each; what is of etcd is None without it.

    A bare call asks the hub for what it has in memory: what the wire alone costs.
    """

    rounds: int
    callers: int
    operations_per_round: int
    hub: OperationFigures
    hub_streams: OperationFigures
    etcd: OperationFigures | None
    etcd_version: str | None
    renewals_together_per_second: float
    bare_calls_per_second: float
    disk_syncs_per_second: float
    ratio_to_etcd: float | None
    ratio_by_calls_to_etcd: float | None
    ratio_by_calls_to_bare_calls: float
    ratio_to_disk_syncs: float

    def figures_line(self) -> str:
        """Return what was measured, as one line."""
        etcd = "etcd is missing (Debian: etcd-server)"
        if self.etcd is not None:
            etcd = f"etcd {self.etcd_version} {self.etcd}, its renewals not durable"
        return (
            f"figures: {self.callers} callers acquire, renew, release: {self.hub_streams};"
            f" renewing by calls {self.hub}; {etcd};"
            f" {self.callers} renewed by one request {self.renewals_together_per_second:,.0f} renewals/s;"
            f" bare calls {self.bare_calls_per_second:,.0f}/s,"
            f" disk {self.disk_syncs_per_second:,.0f} syncs/s"
        )

    def ratios_line(self) -> str:
        """Return what it means within this run, as one line with the goals."""
        to_etcd = "to etcd unknown"
        if self.ratio_to_etcd is not None:
            to_etcd = (
                f"to etcd {self.ratio_to_etcd:.2f} (goal 1.00), by calls {self.ratio_by_calls_to_etcd:.2f}"
            )
        return (
            f"ratios: {to_etcd}, by calls to bare calls {self.ratio_by_calls_to_bare_calls:.2f},"
            f" to disk syncs {self.ratio_to_disk_syncs:.2f};"
            " goals: 5,000 operations/s, p99 30 ms"
        )


async def bench_leases(*, is_quick: bool) -> LeaseFigures:
    """Measure the hub's two ways of renewing, etcd and bare calls in turn."""
    rounds, cycles = (2, 10) if is_quick else (5, 50)
    version = etcd_version()
    hub: list[Timings] = []
    hub_streams: list[Timings] = []
    etcd: list[Timings] = []
    together_rates: list[float] = []
    bare_rates: list[float] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="synchub-bench-")))
        hub_server = await stack.enter_async_context(running_hub(folder))
        etcd_server = await stack.enter_async_context(running_etcd(folder)) if version else None
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            hub.append(await timed_round(HubCaller, hub_server, cycles=cycles))
            hub_streams.append(await timed_round(StreamingHubCaller, hub_server, cycles=cycles))
            if etcd_server is not None:
                etcd.append(await timed_round(EtcdCaller, etcd_server, cycles=cycles))
            async with grpc.aio.insecure_channel(hub_server.address, options=CHANNEL_OPTIONS) as channel:
                bare_rates.append(await bare_call_rate(channel, callers=CALLERS, calls_each=cycles))
                together_rates.append(await together_renewal_rate(channel, leases=CALLERS, requests=cycles))
        syncs = disk_sync_rate(folder / "sync", count=500 if is_quick else 3_000)
    rates, stream_rates, etcd_rates = ([each.rate for each in kind] for kind in (hub, hub_streams, etcd))
    return LeaseFigures(
        rounds=rounds,
        callers=CALLERS,
        operations_per_round=CALLERS * cycles * 3,
        hub=operation_figures(hub),
        hub_streams=operation_figures(hub_streams),
        etcd=operation_figures(etcd) if etcd else None,
        etcd_version=version,
        renewals_together_per_second=statistics.median(together_rates),
        bare_calls_per_second=statistics.median(bare_rates),
        disk_syncs_per_second=syncs,
        ratio_to_etcd=median_ratio(stream_rates, etcd_rates) if etcd else None,
        ratio_by_calls_to_etcd=median_ratio(rates, etcd_rates) if etcd else None,
        ratio_by_calls_to_bare_calls=median_ratio(rates, bare_rates),
        ratio_to_disk_syncs=statistics.median(stream_rates) / syncs,
    )


async def timed_round(
    make_caller: Callable[[grpc.aio.Channel, str], Caller], server: Server, *, cycles: int
) -> Timings:
    """Let new callers on one connection do their operations; the first of each is not counted."""
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        callers = [make_caller(channel, f"lease-{number}") for number in range(CALLERS)]
        await timed_cycles(callers, 1)
        begin = server.processor_seconds()
        timings = await timed_cycles(callers, cycles)
        timings.server_seconds = server.processor_seconds() - begin
        await asyncio.gather(*(caller.close() for caller in callers))
    return timings


def operation_figures(rounds: Sequence[Timings]) -> OperationFigures:
    """Return what several rounds of one kind of callers come to."""
    operations = [seconds for each in rounds for seconds in each.operations]
    return OperationFigures(
        operations_per_second=statistics.median(each.rate for each in rounds),
        p50_ms=p50_ms(operations),
        p99_ms=p99_ms(operations),
        server_us_per_operation=sum(each.server_seconds for each in rounds) / len(operations) * 1e6,
        acquire_p50_ms=p50_ms([seconds for each in rounds for seconds in each.acquire]),
        renew_p50_ms=p50_ms([seconds for each in rounds for seconds in each.renew]),
        release_p50_ms=p50_ms([seconds for each in rounds for seconds in each.release]),
    )
