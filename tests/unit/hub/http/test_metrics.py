"""What is counted is on the page, under its labels, and nothing that was given up is."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hub.core.limits import Limits
from hub.core.values import AlertReason, HubProject
from hub.http.metric_table import METRICS, Kind
from hub.http.metrics import HubMetrics

P, Q = HubProject("p"), HubProject("q")

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def samples(metrics: HubMetrics) -> Samples:
    """The page, read as Prometheus reads it; what is of the process is left out."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families((await metrics.page()).decode())
        for sample in family.samples
        if sample.name.startswith("synchub_")
    }


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def ingest(metrics: HubMetrics, hub_project: HubProject, accepted: int, *, bytes_count: int = 0) -> None:
    metrics.batch_ingested(
        hub_project, accepted=accepted, duplicates=0, conflicts={}, bytes_count=bytes_count
    )


def commit(metrics: HubMetrics) -> None:
    metrics.group_committed(commands=1, seconds=0.002, commit_seconds=0.001)


async def test_a_batch_is_counted_by_its_hub_project_and_outcome() -> None:
    metrics = HubMetrics()
    ingest(metrics, P, 3, bytes_count=100)
    metrics.batch_ingested(P, accepted=0, duplicates=2, conflicts={}, bytes_count=50)
    metrics.batch_ingested(
        Q, accepted=1, duplicates=1, conflicts={"SEQUENCE_REUSED": 2, "RUN_COMPLETE": 1}, bytes_count=7
    )
    metrics.batch_ingested(Q, accepted=0, duplicates=0, conflicts={}, bytes_count=1)
    commit(metrics)
    page = await samples(metrics)
    assert {labels: value for labels, value in page.items() if labels[0] in INGEST} == {
        key("synchub_batches_total", hub_project="p", outcome="accepted"): 1,
        key("synchub_batches_total", hub_project="p", outcome="duplicate"): 1,
        key("synchub_batches_total", hub_project="q", outcome="conflict"): 1,
        key("synchub_batches_total", hub_project="q", outcome="go_back"): 1,
        key("synchub_events_total", hub_project="p", outcome="accepted"): 3,
        key("synchub_events_total", hub_project="p", outcome="duplicate"): 2,
        key("synchub_events_total", hub_project="q", outcome="accepted"): 1,
        key("synchub_events_total", hub_project="q", outcome="duplicate"): 1,
        key("synchub_events_total", hub_project="q", outcome="conflict"): 3,
        key("synchub_batch_bytes_total", hub_project="p"): 150,
        key("synchub_batch_bytes_total", hub_project="q"): 8,
        key("synchub_conflicts_total", hub_project="q", reason="SEQUENCE_REUSED"): 2,
        key("synchub_conflicts_total", hub_project="q", reason="RUN_COMPLETE"): 1,
    }


INGEST = {
    "synchub_batches_total",
    "synchub_events_total",
    "synchub_batch_bytes_total",
    "synchub_conflicts_total",
}


async def test_what_a_failed_group_had_is_not_counted() -> None:
    metrics = HubMetrics()
    ingest(metrics, P, 3)
    metrics.commit_stored(P, events=2, is_recovered=False)
    metrics.group_failed()
    ingest(metrics, P, 1)
    metrics.commit_stored(P, events=5, is_recovered=True)
    commit(metrics)
    page = await samples(metrics)
    assert page[key("synchub_events_total", hub_project="p", outcome="accepted")] == 1
    assert page[key("synchub_journal_commits_total", hub_project="p", outcome="recovered")] == 1
    assert key("synchub_journal_commits_total", hub_project="p", outcome="stored") not in page
    assert key("synchub_journal_events_total", hub_project="p") not in page
    assert page[key("synchub_groups_failed_total")] == 1
    assert page[key("synchub_group_commands_count")] == 1


async def test_a_group_is_in_the_bucket_of_its_size_and_time() -> None:
    metrics = HubMetrics()
    for commands, seconds in ((1, 0.0005), (2, 0.00051), (3, 7.0)):
        metrics.group_committed(commands=commands, seconds=seconds, commit_seconds=seconds / 2)
    page = await samples(metrics)
    buckets = {le: page[key("synchub_group_commands_bucket", le=le)] for le in ("1.0", "2.0", "4.0", "+Inf")}
    assert buckets == {"1.0": 1, "2.0": 2, "4.0": 3, "+Inf": 3}
    seconds_buckets = {
        le: page[key("synchub_group_seconds_bucket", le=le)] for le in ("0.0005", "0.001", "5.0", "+Inf")
    }
    assert seconds_buckets == {"0.0005": 1, "0.001": 2, "5.0": 2, "+Inf": 3}
    assert page[key("synchub_group_seconds_sum")] == pytest.approx(7.00101)
    assert page[key("synchub_commit_seconds_sum")] == pytest.approx(7.00101 / 2)


async def test_hub_projects_past_the_bound_are_counted_together() -> None:
    metrics = HubMetrics(limits=Limits(metrics_hub_projects_max=2))
    for number in range(5):
        ingest(metrics, HubProject(f"p{number}"), 1)
        ingest(metrics, P, 1)
    commit(metrics)
    page = await samples(metrics)
    by_project = {
        dict(labels)["hub_project"]: value
        for (name, labels), value in page.items()
        if name == "synchub_events_total"
    }
    assert by_project == {"p0": 1, "p": 5, "other": 4}


async def test_a_label_may_be_any_text() -> None:
    metrics = HubMetrics()
    name = 'a"b\\c}{ü'
    ingest(metrics, HubProject(name), 1)
    commit(metrics)
    page = await samples(metrics)
    assert page[key("synchub_events_total", hub_project=name, outcome="accepted")] == 1


async def test_a_call_is_counted_by_its_code_and_a_stream_has_no_length() -> None:
    metrics = HubMetrics()
    metrics.call_ended("Commit", code="OK", seconds=0.3)
    metrics.call_ended("Commit", code="ABORTED", seconds=0.001)
    metrics.call_ended("PushEvents", code="OK", seconds=None)
    metrics.call_refused("REVISION_CONFLICT", code="ABORTED", limit=None)
    metrics.call_refused("RATE_LIMITED", code="RESOURCE_EXHAUSTED", limit="writer_queue_bytes_max")
    page = await samples(metrics)
    assert page[key("synchub_calls_total", method="Commit", code="OK")] == 1
    assert page[key("synchub_calls_total", method="Commit", code="ABORTED")] == 1
    assert page[key("synchub_calls_total", method="PushEvents", code="OK")] == 1
    assert page[key("synchub_call_seconds_count", method="Commit")] == 2
    assert page[key("synchub_call_seconds_bucket", method="Commit", le="0.001")] == 1
    assert key("synchub_call_seconds_count", method="PushEvents") not in page
    assert page[key("synchub_refusals_total", reason="REVISION_CONFLICT", code="ABORTED")] == 1
    assert page[key("synchub_limits_reached_total", limit="writer_queue_bytes_max")] == 1


async def test_what_any_thread_tells_is_counted() -> None:
    metrics = HubMetrics()
    reason = AlertReason.SEQUENCE_REUSED

    def tell() -> None:
        for _ in range(1_000):
            metrics.alert_observed(P, reason=reason, count=2)
            metrics.rate_delayed(P, limit="hub_project_events_per_second", seconds=0.5)

    await asyncio.gather(*(asyncio.to_thread(tell) for _ in range(4)))
    page = await samples(metrics)
    assert page[key("synchub_alerts_total", hub_project="p", reason=reason)] == 8_000
    limit = "hub_project_events_per_second"
    assert page[key("synchub_rate_delays_total", hub_project="p", limit=limit)] == 4_000
    assert page[key("synchub_rate_delay_seconds_total", hub_project="p", limit=limit)] == 2_000


async def test_a_gauge_is_read_when_somebody_asks() -> None:
    metrics = HubMetrics()
    value = 1.0
    metrics.watch("synchub_store_bytes", lambda: {(): value})
    assert (await samples(metrics))[key("synchub_store_bytes")] == 1
    value = 2.0
    assert (await samples(metrics))[key("synchub_store_bytes")] == 2


async def test_who_asks_at_the_same_time_gets_one_page() -> None:
    metrics = HubMetrics()
    reads = 0

    def read() -> dict[tuple[str, ...], float]:
        nonlocal reads
        reads += 1
        return {(): reads}

    metrics.watch("synchub_store_bytes", read)
    pages = await asyncio.gather(*(metrics.page() for _ in range(10)))
    assert (reads, len(set(pages))) == (1, 1)


async def test_every_metric_is_on_the_page_with_its_kind_before_anything_happened() -> None:
    page = (await HubMetrics().page()).decode()
    for spec in METRICS.values():
        assert f"# HELP {spec.name} {spec.documentation}\n# TYPE {spec.name} {spec.kind.value}\n" in page


def test_names_and_labels_are_as_prometheus_wants_them() -> None:
    for name, spec in METRICS.items():
        assert name.startswith("synchub_"), name
        assert name.endswith("_total") == (spec.kind is Kind.COUNTER), name
        assert bool(spec.buckets) == (spec.kind is Kind.HISTOGRAM), name
        assert list(spec.buckets) == sorted(set(spec.buckets)), name
        assert set(spec.labels).isdisjoint({"le", "job", "instance"}), name
        assert spec.documentation.endswith("."), name


async def test_runtimes_that_fall_silent_and_tenures_that_begin_and_end_are_counted() -> None:
    metrics = HubMetrics()
    for _ in range(2):
        metrics.runtime_lost(P)
    metrics.tenures_changed(P, begun=3, expired=0)
    metrics.tenures_changed(Q, begun=0, expired=2)
    metrics.renewal_refused("LEASE_EXPIRED")
    page = await samples(metrics)
    assert page[key("synchub_runtimes_lost_total", hub_project="p")] == 2
    assert page[key("synchub_lease_grants_total", hub_project="p")] == 3
    assert page[key("synchub_lease_expiries_total", hub_project="q")] == 2
    assert key("synchub_lease_expiries_total", hub_project="p") not in page
    assert page[key("synchub_renewals_refused_total", reason="LEASE_EXPIRED")] == 1
