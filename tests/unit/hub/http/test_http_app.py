"""The pages of the HTTP port, asked without a network."""

import json
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message, Scope

from hub.core.errors import StorageUnavailable
from hub.http.app import Probes, make_http_app
from hub.http.metrics import HubMetrics


async def works() -> None:
    """A writer that answers."""


async def has_no_disk() -> None:
    raise StorageUnavailable


async def never_answers() -> None:
    raise TimeoutError


def probes(
    writer: Callable[[], Awaitable[None]] = works,
    *,
    is_stopping: bool = False,
    dead_part: str | None = None,
    ahead_seconds: float = 0.0,
) -> Probes:
    return Probes(writer, lambda: is_stopping, lambda: dead_part, lambda: ahead_seconds)


async def ask(path: str, asked: Probes, metrics: HubMetrics | None = None) -> tuple[int, str]:
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
    await make_http_app(asked, metrics or HubMetrics())(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return int(sent[0]["status"]), body.decode()


async def test_a_hub_whose_writer_answers_is_alive_and_ready() -> None:
    assert await ask("/healthz", probes()) == (200, '{"status":"ok"}')
    assert await ask("/readyz", probes()) == (200, '{"status":"ready","warnings":[]}')


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("writer", [has_no_disk, never_answers])
async def test_a_hub_whose_writer_does_not_answer_is_not_alive(
    path: str, writer: Callable[[], Awaitable[None]]
) -> None:
    status, body = await ask(path, probes(writer))
    assert (status, json.loads(body)["status"]) == (503, "failing")


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_hub_of_which_a_part_has_died_is_not_alive(path: str) -> None:
    status, body = await ask(path, probes(dead_part="presence"))
    assert (status, "presence" in json.loads(body)["problem"]) == (503, True)


async def test_a_hub_that_stops_is_alive_but_not_ready() -> None:
    assert (await ask("/healthz", probes(is_stopping=True)))[0] == 200
    assert await ask("/readyz", probes(is_stopping=True)) == (503, '{"status":"stopping"}')


@pytest.mark.parametrize(("ahead_seconds", "is_told"), [(59.0, False), (60.0, True), (-60.0, True)])
async def test_clocks_that_are_a_minute_apart_are_told(ahead_seconds: float, is_told: bool) -> None:
    status, body = await ask("/readyz", probes(ahead_seconds=ahead_seconds))
    assert (status, bool(json.loads(body)["warnings"])) == (200, is_told)
