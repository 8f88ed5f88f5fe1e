"""Health of a real hub under real faults, over HTTP and over gRPC: what does not work is said."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import apsw
import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from hub.core.limits import Limits
from hub.rpc.self_call import CHECK_METHOD
from tests.contract.conftest import settings_in
from tests.contract.hub_in_thread import HubInThread

QUICK: Final = Limits(
    health_check_seconds=0.05,
    probe_cached_seconds=0.001,
    loop_late_seconds_max=60.0,
    busy_timeout_seconds=60.0,
)
"""Looks often. Nothing is late here because the machine has other things to do."""
FOUND_SECONDS_MAX: Final = 60.0


def page(hub: HubInThread, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://{hub.http_address}{path}", timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def health_by_grpc(hub: HubInThread, service: str = "") -> int:
    with grpc.insecure_channel(hub.address) as channel:
        check = channel.unary_unary(
            CHECK_METHOD,
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        return int(check(HealthCheckRequest(service=service), timeout=10).status)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + FOUND_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < end


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubInThread]:
    with HubInThread(settings_in(tmp_path, QUICK)) as running:
        yield running


@contextmanager
def writing_elsewhere(database: Path) -> Iterator[None]:
    """Hold the store's lock, so that the hub's writer waits."""
    with closing(apsw.Connection(str(database))) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


async def end_loop(name: str) -> None:
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == name]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "name", ["leases", "presence", "alerts", "writes", "credentials", "loop_delay", "health"]
)
def test_a_hub_over_a_dead_loop_does_not_look_well(hub: HubInThread, name: str) -> None:
    assert page(hub, "/healthz") == (200, {"status": "ok"})
    hub.run(end_loop(name))
    for path in ("/healthz", "/readyz"):
        status, told = page(hub, path)
        assert (status, told["status"]) == (503, "failing")
        assert told["problems"] == [f"{name} has ended by a fault; the log has the details"]


def test_health_by_grpc_follows_and_comes_back(tmp_path: Path) -> None:
    limits = replace(QUICK, probe_seconds_max=2.0)
    with HubInThread(settings_in(tmp_path, limits)) as hub:
        follow_the_writer(hub, tmp_path / "hub.db")


def follow_the_writer(hub: HubInThread, database: Path) -> None:
    """See how health follows a writer that waits, and that goes on."""
    services = ("", "synchub.v1.SyncService", "synchub.v1.HubService")
    assert {health_by_grpc(hub, service) for service in services} == {HealthCheckResponse.SERVING}
    with writing_elsewhere(database):
        until(lambda: page(hub, "/healthz")[0] == 503)
        problems = page(hub, "/healthz")[1]["problems"]
        assert isinstance(problems, list)
        assert "the writer did not answer within 2 s" in problems
        until(lambda: health_by_grpc(hub) == HealthCheckResponse.NOT_SERVING)
        assert {health_by_grpc(hub, service) for service in services} == {HealthCheckResponse.NOT_SERVING}
    until(lambda: page(hub, "/healthz") == (200, {"status": "ok"}))
    until(lambda: health_by_grpc(hub) == HealthCheckResponse.SERVING)
    assert page(hub, "/readyz") == (200, {"status": "ready", "warnings": []})


def test_an_event_loop_that_hung_is_told_by_the_loops_that_were_late(hub: HubInThread) -> None:
    def lateness() -> float:
        with urllib.request.urlopen(f"http://{hub.http_address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        (line,) = [each for each in lines if each.startswith("synchub_event_loop_delay_seconds_sum ")]
        return float(line.split()[1])

    async def hang() -> None:
        time.sleep(0.5)  # noqa: ASYNC251 - that is the fault

    before = lateness()
    hub.run(hang())
    until(lambda: lateness() > before + 0.1)


def test_a_storm_of_probes_makes_few_looks(tmp_path: Path) -> None:
    limits = Limits(health_check_seconds=3_600.0, probe_cached_seconds=60.0)
    with HubInThread(settings_in(tmp_path, limits)) as hub:

        def commits() -> float:
            with urllib.request.urlopen(f"http://{hub.http_address}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            (line,) = [each for each in lines if each.startswith("synchub_group_commands_sum ")]
            return float(line.split()[1])

        until(lambda: page(hub, "/healthz")[0] == 200)
        before = commits()
        for _ in range(100):
            assert page(hub, "/healthz")[0] == 200
        assert commits() == before


def test_a_disk_with_little_room_is_a_warning_and_no_reason_to_fail(tmp_path: Path) -> None:
    limits = Limits(disk_free_bytes_min=2**62)
    with HubInThread(settings_in(tmp_path, limits)) as hub:
        until(lambda: page(hub, "/readyz")[1].get("warnings") != [])
        status, told = page(hub, "/readyz")
        assert (status, told["status"]) == (200, "ready")
        warnings = told["warnings"]
        assert isinstance(warnings, list)
        assert warnings[0].startswith("the disk is nearly full: ")
        status, told = page(hub, "/healthz")
        assert (status, told["status"], told["warnings"]) == (200, "ok", warnings)


def test_hubs_beside_each_other_call_themselves(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with (
        HubInThread(settings_in(tmp_path / "one", QUICK)) as one,
        HubInThread(settings_in(tmp_path / "two", QUICK)) as two,
    ):
        one.run(end_loop("presence"))
        assert page(one, "/healthz")[0] == 503
        assert page(two, "/healthz")[0] == 200
