"""The pages of the HTTP port, asked without a network."""

import json
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Scope

from hub.core.errors import Refusal, StorageUnavailable
from hub.core.limits import Limits
from hub.http.app import make_http_app
from hub.http.metrics import HubMetrics
from hub.service.health import Health, Probes


async def works() -> None:
    """Something that answers."""


async def never_answers() -> None:
    raise TimeoutError


async def has_no_disk() -> None:
    raise StorageUnavailable


class Situation:
    """What the hub would find out about itself."""

    def __init__(self) -> None:
        self.call_grpc: Callable[[], Awaitable[None]] = works
        self.run_through_writer: Callable[[], Awaitable[None]] = works
        self.read: Callable[[], Awaitable[None]] = works
        self.loop_problems: list[str] = []
        self.store_fault: str | None = None
        self.disk_free_bytes: int | None = 10**12
        self.ahead_seconds = 0.0
        self.is_stopping = False

    def health(self) -> Health:
        probes = Probes(
            call_grpc=self.call_grpc,
            run_through_writer=self.run_through_writer,
            read=self.read,
            loop_problems=lambda: self.loop_problems,
            store_fault=lambda: self.store_fault,
            disk_free_bytes=lambda: self.disk_free_bytes,
            hub_time_ahead_seconds=lambda: self.ahead_seconds,
            is_stopping=lambda: self.is_stopping,
        )
        return Health(probes, limits=Limits(), monotonic_seconds=lambda: 0.0)

    async def ask(self, path: str, metrics: HubMetrics | None = None) -> tuple[int, str]:
        """What the application answers to a GET."""
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: Scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [],
            "http_version": "1.1",
            "scheme": "http",
            "root_path": "",
        }
        await make_http_app(self.health(), metrics or HubMetrics())(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent)
        return int(sent[0]["status"]), body.decode()

    async def problems(self, path: str) -> list[str]:
        """Why a page fails; [] where it does not."""
        status, body = await self.ask(path)
        problems: list[str] = json.loads(body).get("problems", [])
        assert (status == 503) == bool(problems)
        return problems


async def test_a_hub_that_answers_is_alive_and_ready() -> None:
    assert await Situation().ask("/healthz") == (200, '{"status":"ok"}')
    assert await Situation().ask("/readyz") == (200, '{"status":"ready","warnings":[]}')


@pytest.mark.parametrize(
    ("part", "name"), [("call_grpc", "gRPC"), ("run_through_writer", "the writer"), ("read", "reading")]
)
async def test_a_hub_of_which_a_part_does_not_answer_is_not_alive(part: str, name: str) -> None:
    situation = Situation()
    setattr(situation, part, never_answers)
    for path in ("/healthz", "/readyz"):
        assert await situation.problems(path) == [f"{name} did not answer within 5 s"]


async def test_a_hub_over_a_dead_or_late_loop_is_not_alive() -> None:
    situation = Situation()
    situation.loop_problems = ["presence has ended by a fault; the log has the details"]
    for path in ("/healthz", "/readyz"):
        assert await situation.problems(path) == situation.loop_problems


@pytest.mark.parametrize(("fault", "told"), [("the disk is full", "the disk is full"), (None, None)])
async def test_a_hub_that_cannot_store_is_alive_and_not_ready(fault: str | None, told: str | None) -> None:
    situation = Situation()
    situation.store_fault = fault
    situation.run_through_writer = has_no_disk
    refusal: Refusal = StorageUnavailable()
    expected = told or str(refusal).rstrip(".")
    assert await situation.problems("/readyz") == [expected]
    status, body = await situation.ask("/healthz")
    assert (status, json.loads(body)) == (200, {"status": "ok", "warnings": [expected]})


async def test_a_hub_that_stops_is_alive_but_not_ready() -> None:
    situation = Situation()
    situation.is_stopping = True
    assert (await situation.ask("/healthz"))[0] == 200
    assert await situation.ask("/readyz") == (503, '{"status":"stopping"}')


@pytest.mark.parametrize(("ahead_seconds", "is_told"), [(59.0, False), (60.0, True), (-60.0, True)])
async def test_clocks_that_are_a_minute_apart_are_told(ahead_seconds: float, is_told: bool) -> None:
    situation = Situation()
    situation.ahead_seconds = ahead_seconds
    status, body = await situation.ask("/readyz")
    assert (status, bool(json.loads(body)["warnings"])) == (200, is_told)


async def test_a_disk_that_is_nearly_full_is_told() -> None:
    situation = Situation()
    situation.disk_free_bytes = 255 * 1024**2
    status, body = await situation.ask("/readyz")
    assert (status, json.loads(body)["warnings"]) == (200, ["the disk is nearly full: 255 MiB are free"])


async def test_the_page_of_metrics_is_for_prometheus() -> None:
    metrics = HubMetrics()
    status, body = await Situation().ask("/metrics", metrics)
    assert (status, "# TYPE synchub_events_total counter" in body) == (200, True)
