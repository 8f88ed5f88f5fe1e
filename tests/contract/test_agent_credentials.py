"""An agent's link against a real hub that wants credentials: what its token is for decides, run by run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from runtime_agent.core.values import HubLinkState, RunKey, RuntimeIdentity
from runtime_agent.hub_client.link import Link
from synchub.channel import parse_addresses
from synchub.credentials import NO_CREDENTIALS, Credentials
from synchub.v1.hub_service_pb2 import RevokeTokenRequest
from synchub.v1.sync_service_pb2 import GetRunRequest, ListAlertsRequest
from tests.contract.secured import BOUND_RUNTIME, SecuredHub
from tests.unit.runtime_agent.hub_client.link_runtime import Runtime, eventually

OPEN = RunKey("one-p", "r")
CLOSED = RunKey("elsewhere", "r")


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = Runtime(tmp_path / "data")
    yield runtime
    await asyncio.to_thread(runtime.log.stop)
    assert runtime.notes.mistakes == []


@asynccontextmanager
async def linked(
    runtime: Runtime, hub: SecuredHub, credentials: Credentials, *, runtime_id: str, hub_project: str = "one"
) -> AsyncIterator[Link]:
    link = Link(
        parse_addresses(hub.hub.address),
        identity=RuntimeIdentity(hub_project, runtime_id),
        instance=runtime.instance,
        log=runtime.log,
        surroundings=runtime.surroundings,
        credentials=credentials,
    )
    task = asyncio.create_task(link.run())
    try:
        yield link
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def token(hub: SecuredHub, name: str) -> Credentials:
    return Credentials(token=hub.bearers[name].bearer_token)


async def until_told(link: Link, part_of_the_detail: str) -> None:
    await eventually(lambda: part_of_the_detail in link.status().detail)


def stored_count(hub: SecuredHub, run: RunKey) -> int:
    """How many events of a run the hub has, whoever's it is."""
    request = GetRunRequest(project_id=run.project_id, run_id=run.run_id)
    response = hub.stubs("one/operator").sync.GetRun(request)
    return response.run.event_count


async def test_runs_of_projects_that_the_token_is_not_for_wait_and_the_others_go_on(
    secured_hub: SecuredHub, runtime: Runtime
) -> None:
    await runtime.append(CLOSED, [b"1"])
    await runtime.append(OPEN, [b"a"])
    credentials = token(secured_hub, "one/runtime")
    async with linked(runtime, secured_hub, credentials, runtime_id="prefixed") as link:
        await runtime.until_synced(OPEN, 1)
        await until_told(link, "project 'elsewhere' is not open to this agent")
        await runtime.append(CLOSED, [b"2"])
        await runtime.append(OPEN, [b"b"])
        await runtime.until_synced(OPEN, 2)
        assert link.status().state is HubLinkState.CONNECTED
    state = await runtime.state(CLOSED)
    assert (state.acknowledged_sequence, state.last_sequence, state.quarantine) == (0, 2, None)
    assert stored_count(secured_hub, OPEN) == 2


async def test_a_token_for_another_runtime_is_told_alerted_and_stores_nothing(
    secured_hub: SecuredHub, runtime: Runtime
) -> None:
    run = RunKey("one-q", "r")
    await runtime.append(run, [b"1"])
    credentials = token(secured_hub, "one/bound")
    async with linked(runtime, secured_hub, credentials, runtime_id="somebody") as link:
        await until_told(link, "this agent is started for hub project 'one' and runtime 'somebody'")
        assert link.status().state is HubLinkState.WAITING
    alerts = secured_hub.stubs("one/operator").sync.ListAlerts(ListAlertsRequest()).alerts
    assert "somebody" in {alert.runtime_id for alert in alerts}
    assert (await runtime.state(run)).acknowledged_sequence == 0
    async with linked(runtime, secured_hub, credentials, runtime_id=BOUND_RUNTIME):
        await runtime.until_synced(run, 1)
    assert stored_count(secured_hub, run) == 1


@pytest.mark.parametrize(
    ("credentials_name", "part_of_the_detail"),
    [
        ("", "the agent shows no credential"),
        ("one/expired", "the hub refused the credential"),
        ("one/revoked", "the hub refused the credential"),
        ("two/runtime", "this agent is started for hub project 'one'"),
        ("one/reader", "may not call SyncService/ReconcileRuns"),
    ],
)
async def test_what_does_not_let_an_agent_in_is_told_and_appends_go_on(
    secured_hub: SecuredHub, runtime: Runtime, credentials_name: str, part_of_the_detail: str
) -> None:
    run = RunKey("one-z", credentials_name or "nobody")
    await runtime.append(run, [b"1"])
    credentials = token(secured_hub, credentials_name) if credentials_name else NO_CREDENTIALS
    async with linked(runtime, secured_hub, credentials, runtime_id="rt") as link:
        await until_told(link, part_of_the_detail)
        await runtime.append(run, [b"2"])
    state = await runtime.state(run)
    assert (state.acknowledged_sequence, state.last_sequence, state.quarantine) == (0, 2, None)


async def test_a_token_that_is_revoked_under_an_open_stream_ends_it_and_nothing_is_lost(
    secured_hub: SecuredHub, runtime: Runtime, tmp_path: Path
) -> None:
    run = RunKey("one-s", "r")
    file = tmp_path / "token"
    await asyncio.to_thread(file.write_text, secured_hub.bearers["one/free"].bearer_token)
    credentials = Credentials(token_file=str(file))
    async with linked(runtime, secured_hub, credentials, runtime_id="revoked") as link:
        await runtime.append(run, [b"1"])
        await runtime.until_synced(run, 1)
        token_id = secured_hub.bearers["one/free"].token.token_id
        operator = secured_hub.stubs("one/operator").hub
        await asyncio.to_thread(operator.RevokeToken, RevokeTokenRequest(token_id=token_id))
        await until_told(link, "the token was revoked")
        await runtime.append(run, [b"2"])
        assert await asyncio.to_thread(stored_count, secured_hub, run) == 1
        await asyncio.to_thread(file.write_text, secured_hub.bearers["one/runtime"].bearer_token)
        await runtime.until_synced(run, 2)
        assert link.status().detail == ""
    assert stored_count(secured_hub, run) == 2
