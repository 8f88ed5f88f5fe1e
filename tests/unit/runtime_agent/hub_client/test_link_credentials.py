"""What the agent shows to a hub, and what it does when that is refused: it waits, and loses nothing."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import trustme

from runtime_agent import limits
from runtime_agent.core.values import HubLinkState, RunKey
from runtime_agent.hub_client.codec import PushSender
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.link import PUSH_BOUNDS, Link
from runtime_agent.hub_client.presence import Machine, Presence, PresenceListeners
from runtime_agent.hub_client.push_session import LAST_WORDS_SECONDS
from synchub.channel import HubAddress, Refusal
from synchub.credentials import Credentials, CredentialsError, CredentialSource
from tests.unit.protos.showing_server import ClientFiles, server_credentials
from tests.unit.runtime_agent.hub_client.link_runtime import IDENTITY, OTHER, RUN, Runtime, eventually
from tests.unit.runtime_agent.hub_client.wire_hub import WireHub, refusal_status

FORBIDDEN = RunKey("q", "n1")


@pytest.fixture
def files(tmp_path: Path) -> ClientFiles:
    folder = tmp_path / "shown"
    folder.mkdir()
    return ClientFiles(folder)


async def until_refused(link: Link, part_of_the_detail: str) -> str:
    await eventually(
        lambda: link.status().state is HubLinkState.WAITING and part_of_the_detail in link.status().detail
    )
    return link.status().detail


def new_presence(runtime: Runtime, port: int) -> Presence:
    return Presence(
        (HubAddress("127.0.0.1", port),),
        identity=IDENTITY,
        instance=runtime.instance,
        machine=Machine("host", 7, "1.0", {}),
        log=runtime.log,
        surroundings=runtime.surroundings,
        listeners=PresenceListeners(on_lost=lambda: None, on_drain=lambda _: None),
        credentials=runtime.credentials,
    )


async def test_the_token_is_shown_in_every_call_over_mutual_tls(
    runtime: Runtime, hub: WireHub, files: ClientFiles
) -> None:
    authority = trustme.CA()
    files.put_token("synchub_t")
    files.put_ca(authority)
    files.put_certificate(authority, "client")
    runtime.credentials = CredentialSource(
        Credentials(
            token_file=files.token, ca_file=files.ca, certificate_file=files.certificate, key_file=files.key
        )
    )
    hub.accepted_tokens = {"synchub_t"}
    await runtime.append(RUN, [b"1"])
    shown = server_credentials(authority, "127.0.0.1", clients=authority)
    async with hub.serving(credentials=shown) as port, runtime.linked(port):
        presence = new_presence(runtime, port)
        task = asyncio.create_task(presence.run())
        await runtime.until_synced(RUN, 1)
        await eventually(lambda: bool(hub.heartbeats))
        await presence.say_goodbye(5.0)
        await task
    assert hub.payloads(RUN) == [b"1"]
    names = ("GetHubInfo", "ReconcileRuns", "PushEvents", "Heartbeat")
    assert hub.tokens_seen == {(name, "synchub_t") for name in names}


async def test_a_revoked_token_loses_nothing_and_its_successor_is_shown_without_a_restart(
    runtime: Runtime, hub: WireHub, files: ClientFiles
) -> None:
    files.put_token("old")
    runtime.credentials = Credentials(token_file=files.token)
    hub.accepted_tokens = {"old"}
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port) as link:
        await runtime.until_synced(RUN, 1)
        hub.accepted_tokens = {"new"}
        await runtime.append(RUN, [b"2"])
        await runtime.append(OTHER, [b"a"])
        detail = await until_refused(link, "the hub refused the credential")
        assert f"{files.token} is read again at each try" in detail
        assert "next try in" in detail
        assert hub.payloads(RUN) == [b"1"]
        await runtime.append(RUN, [b"3"])
        files.put_token("new")
        await runtime.until_synced(RUN, 3)
        await runtime.until_synced(OTHER, 1)
        assert link.status().detail == ""
    assert hub.payloads(RUN) == [b"1", b"2", b"3"]
    assert hub.payloads(OTHER) == [b"a"]


async def test_a_hub_that_wants_credentials_of_an_agent_that_has_none_is_told(
    runtime: Runtime, hub: WireHub
) -> None:
    hub.accepted_tokens = {"t"}
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port) as link:
        detail = await until_refused(link, "start it with --token-file or --cert-file")
        assert detail.startswith("the agent shows no credential")
    assert hub.runs == {}
    assert (await runtime.state(RUN)).acknowledged_sequence == 0


async def test_a_token_file_that_vanished_leaves_the_last_good_token_and_is_told_when_that_is_refused(
    runtime: Runtime, hub: WireHub, files: ClientFiles
) -> None:
    files.put_token("old")
    runtime.credentials = Credentials(token_file=files.token)
    hub.accepted_tokens = {"old"}
    async with hub.serving() as port, runtime.linked(port) as link:
        await eventually(lambda: link.status().state is HubLinkState.CONNECTED)
        files.remove_token()
        hub.accepted_tokens = {"new"}
        await runtime.append(RUN, [b"1"])
        detail = await until_refused(link, "No such file")
        assert "so its last good contents are shown" in detail
        assert {token for _, token in hub.tokens_seen} == {"old"}
        files.put_token("new")
        await runtime.until_synced(RUN, 1)


async def test_an_agent_is_not_started_with_a_token_file_that_is_not_there(
    runtime: Runtime, files: ClientFiles
) -> None:
    runtime.credentials = Credentials(token_file=files.token)
    with pytest.raises(CredentialsError, match="No such file"):
        runtime.new_link(1)
    with pytest.raises(CredentialsError, match="No such file"):
        new_presence(runtime, 1)


async def test_a_credential_for_somebody_else_is_told_and_tried_again(runtime: Runtime, hub: WireHub) -> None:
    hub.identity_refusal = refusal_status(
        grpc.StatusCode.PERMISSION_DENIED, "IDENTITY_MISMATCH", message="it is not", field="runtime_id"
    )
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port, runtime.linked(port) as link:
        detail = await until_refused(link, "it is not")
        assert detail.startswith(
            "this agent is started for hub project 'hp' and runtime 'r1', and its credential"
        )
        assert hub.runs == {}
        hub.identity_refusal = None
        await runtime.until_synced(RUN, 1)
    assert hub.payloads(RUN) == [b"1"]


async def test_a_project_that_is_refused_in_a_push_waits_and_the_others_go_on(
    runtime: Runtime, hub: WireHub
) -> None:
    denied = refusal_status(grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED", projectId="q", runId="n1")
    hub.push_refusals[FORBIDDEN] = denied
    await runtime.append(FORBIDDEN, [b"1"])
    async with hub.serving() as port, runtime.linked(port) as link:
        await eventually(lambda: FORBIDDEN not in hub.push_refusals)
        await runtime.append(RUN, [b"a"])
        await runtime.until_synced(RUN, 1)
        await runtime.append(FORBIDDEN, [b"2"])
        await runtime.append(RUN, [b"b"])
        await runtime.until_synced(RUN, 2)
        await eventually(lambda: link.status().state is HubLinkState.CONNECTED)
        detail = link.status().detail
        assert detail.startswith("project 'q' is not open to this agent: tried again in")
    state = await runtime.state(FORBIDDEN)
    assert (state.acknowledged_sequence, state.last_sequence, state.quarantine) == (0, 2, None)
    assert hub.payloads(FORBIDDEN) == []


async def test_a_project_that_waited_is_tried_again(runtime: Runtime, hub: WireHub) -> None:
    runtime.bounds = replace(PUSH_BOUNDS, project_hold_seconds=0.3)
    hub.forbidden_projects.add("q")
    await runtime.append(FORBIDDEN, [b"1"])
    async with hub.serving() as port, runtime.linked(port) as link:
        await eventually(lambda: "project 'q'" in link.status().detail)
        hub.forbidden_projects.clear()
        await runtime.until_synced(FORBIDDEN, 1)
        await eventually(lambda: link.status().detail == "")
    assert hub.payloads(FORBIDDEN) == [b"1"]


async def test_the_stream_waits_as_long_as_a_hub_asks_before_its_next_batch(
    runtime: Runtime, hub: WireHub
) -> None:
    hub.retry_delays = [0.4]
    async with hub.serving() as port, runtime.linked(port):
        await runtime.append(RUN, [b"1"])
        await runtime.until_synced(RUN, 1)
        await runtime.append(RUN, [b"2"])
        await runtime.until_synced(RUN, 2)
    assert hub.payloads(RUN) == [b"1", b"2"]
    assert hub.counts["push_streams"] == 1
    first, second = hub.batch_times
    assert second - first >= 0.4


async def test_a_replaced_token_is_not_waited_for(runtime: Runtime, hub: WireHub, files: ClientFiles) -> None:
    runtime.surroundings = replace(runtime.surroundings, chance=lambda: 0.99)
    files.put_token("old")
    runtime.credentials = Credentials(token_file=files.token)
    hub.accepted_tokens = {"new"}
    await runtime.append(RUN, [b"1"])
    async with hub.serving() as port:
        link, presence = runtime.new_link(port), new_presence(runtime, port)
        # As after hours: the next try would be in a minute.
        link._credential_backoff.failure_count = presence._backoff.failure_count = 30
        tasks = [asyncio.create_task(link.run()), asyncio.create_task(presence.run())]
        await until_refused(link, "next try in 59 s")
        await eventually(lambda: ("Heartbeat", "old") in hub.tokens_seen)
        files.put_token("new")
        await runtime.until_synced(RUN, 1)
        await eventually(lambda: bool(hub.heartbeats))
        await presence.say_goodbye(5.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert hub.payloads(RUN) == [b"1"]


@pytest.mark.parametrize(
    "reason",
    [
        "CREDENTIAL_MISSING",
        "CREDENTIAL_INVALID",
        "CREDENTIAL_EXPIRED",
        "CREDENTIAL_REVOKED",
        "IDENTITY_MISMATCH",
        "QUOTA_EXCEEDED",
    ],
)
async def test_a_refusal_for_a_person_to_settle_is_tried_again_after_a_minute_at_most(
    runtime: Runtime, reason: str
) -> None:
    runtime.surroundings = replace(runtime.surroundings, chance=lambda: 0.999)
    link = runtime.new_link(1)
    refused = HubCallError(Refusal(grpc.StatusCode.UNAUTHENTICATED, "no", reason, retry_delay_seconds=3600.0))
    unasked = HubCallError(Refusal(grpc.StatusCode.UNAUTHENTICATED, "no", reason))
    sender = PushSender(IDENTITY, "i1")
    waits = [link._wait_seconds_after(unasked, sender) for _ in range(12)]
    assert waits == sorted(waits)
    assert waits[0] < 1.0
    assert 50.0 < waits[-1] <= limits.CREDENTIAL_WAIT_SECONDS_MAX == 60.0
    assert link._wait_seconds_after(refused, sender) <= 60.0


def over_mutual_tls(files: ClientFiles, authority: trustme.CA) -> Credentials:
    files.put_ca(authority)
    files.put_certificate(authority, "old")
    return Credentials(ca_file=files.ca, certificate_file=files.certificate, key_file=files.key)


async def test_certificates_are_replaced_while_an_open_push_stream_goes_on(
    runtime: Runtime, hub: WireHub, files: ClientFiles
) -> None:
    authority = trustme.CA()
    runtime.credentials = source = CredentialSource(over_mutual_tls(files, authority))
    shown = server_credentials(authority, "127.0.0.1", clients=authority)
    async with hub.serving(credentials=shown) as port, runtime.linked(port):
        await runtime.append(RUN, [b"1"])
        await runtime.until_synced(RUN, 1)
        files.put_certificate(authority, "new")
        source.refreshed()
        await runtime.append(RUN, [b"2"])
        await runtime.append(OTHER, [b"a"])
        await runtime.until_synced(RUN, 2)
        await runtime.until_synced(OTHER, 1)
    assert hub.payloads(RUN) == [b"1", b"2"]
    assert hub.counts["push_streams"] == 1


async def test_certificates_are_replaced_while_nothing_is_pushed(
    runtime: Runtime, hub: WireHub, files: ClientFiles
) -> None:
    authority = trustme.CA()
    runtime.credentials = source = CredentialSource(over_mutual_tls(files, authority))
    shown = server_credentials(authority, "127.0.0.1", clients=authority)
    async with hub.serving(credentials=shown) as port, runtime.linked(port) as link:
        await eventually(lambda: link.status().state is HubLinkState.CONNECTED)
        reconciles = hub.counts["reconciles"]
        files.put_certificate(authority, "new")
        source.refreshed()
        await runtime.append(RUN, [b"1"])
        await runtime.until_synced(RUN, 1)
        await runtime.append(RUN, [b"2"])
        await runtime.until_synced(RUN, 2)
        assert hub.payloads(RUN) == [b"1", b"2"]
        # Longer than a session waits for its last words before it gives a connection up.
        assert link._session is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS + 0.5):
                await asyncio.shield(link._session._failed)
    assert (hub.counts["push_streams"], hub.counts["reconciles"]) == (1, reconciles)
