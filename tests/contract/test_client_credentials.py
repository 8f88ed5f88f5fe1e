"""The Python clients against a hub that wants credentials: all they do, and tokens replaced meanwhile."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import grpc
import pytest

from runtime_agent.core.errors import UsageError
from runtime_agent.core.values import RunKey
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import NewJournalEvent, NewOutboxMessage
from runtime_agent.hub_client.journal_watch import JournalWatch
from runtime_agent.hub_client.lease import Lease
from runtime_agent.hub_client.stored_values import BatchToPush, EventToPush
from runtime_agent.projection import ProjectionRunner
from synchub.credentials import Credentials
from synchub.v1.hub_service_pb2 import CreateTokenRequest, RevokeTokenRequest, Role
from tests.contract.holding import until
from tests.contract.secured import SecuredHub

RUNTIME = "runtime"


class Tokens:
    """A token file whose token an operator replaces."""

    def __init__(self, hub: SecuredHub, file: Path) -> None:
        self._operator = hub.stubs("one/operator").hub
        self.file = file
        self._token_id = ""
        self._older_ids: list[str] = []
        self.newest = ""
        self.renew()

    @property
    def credentials(self) -> Credentials:
        return Credentials(token_file=str(self.file))

    def renew(self) -> None:
        """Put a new token into the file; the old one stays good."""
        made = self._operator.CreateToken(
            CreateTokenRequest(
                display_name=f"t-{uuid4().hex}", role=Role.ROLE_RUNTIME, project_id_prefixes=["one-"]
            )
        )
        self._older_ids += [self._token_id] if self._token_id else []
        self._token_id, self.newest = made.token.token_id, made.bearer_token
        new = self.file.with_suffix(".new")
        new.write_text(f"{made.bearer_token}\n")
        new.replace(self.file)

    def revoke_older(self) -> None:
        """Take back all but the file's token."""
        for token_id in self._older_ids:
            self._operator.RevokeToken(RevokeTokenRequest(token_id=token_id))

    def revoke(self) -> None:
        """Take the file's token back."""
        self._operator.RevokeToken(RevokeTokenRequest(token_id=self._token_id))


@pytest.fixture
def tokens(secured_hub: SecuredHub, tmp_path: Path) -> Tokens:
    return Tokens(secured_hub, tmp_path / "token")


@pytest.fixture
def hub(secured_hub: SecuredHub, tokens: Tokens) -> Iterator[HubClient]:
    """A client that names no hub project."""
    with HubClient.connect(
        secured_hub.hub.address, credentials=tokens.credentials, runtime_id=RUNTIME
    ) as client:
        yield client


def new_run() -> RunKey:
    return RunKey("one-p", uuid4().hex)


def batch(run: RunKey) -> BatchToPush:
    return BatchToPush(run, (EventToPush(1, "t", b"1"),))


def refusal_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(HubCallError) as caught:
        call()
    return caught.value.refusal.code, caught.value.reason


def test_a_client_with_a_token_does_all_it_does_and_its_hub_project_is_the_tokens(
    secured_hub: SecuredHub, hub: HubClient
) -> None:
    run, stream = new_run(), uuid4().hex
    (pushed,) = hub.push([batch(run)], runtime_id=RUNTIME)
    assert pushed.accepted_count == 1
    assert hub.get_run(run).cursor == 1
    with hub.lease(stream) as lease, hub.watch_journal(from_now=True) as watch:
        next(watch)
        committed = hub.commit(
            "m" + stream,
            stream,
            lease=lease,
            expected_revision=0,
            events=[NewJournalEvent(stream, "noted")],
            outbox_messages=[NewOutboxMessage("o" + stream, "mail-" + stream)],
        )
        assert committed.revision == 1
        assert [event.event_id for event in next(watch).events] == [stream]
    with hub.outbox("mail-" + stream) as outbox:
        message = next(iter(outbox))
        with message:
            assert message.outbox_id == "o" + stream
    with HubClient.connect(
        secured_hub.hub.address,
        hub_project="one",
        credentials=Credentials(token=secured_hub.bearers["one/reader"].bearer_token),
    ) as reader:
        assert reader.get_run(run).cursor == 1


async def test_a_client_that_awaits_does_so_too(secured_hub: SecuredHub, tokens: Tokens) -> None:
    run, stream = new_run(), uuid4().hex
    client = await AsyncHubClient.connect(
        secured_hub.hub.address, credentials=tokens.credentials, runtime_id=RUNTIME
    )
    async with client as hub:
        (pushed,) = [each async for each in hub.push([batch(run)], runtime_id=RUNTIME)]
        assert pushed.accepted_count == 1
        assert (await hub.get_run(run)).cursor == 1
        async with hub.lease(stream) as lease, hub.watch_journal(from_now=True) as watch:
            await anext(watch)
            await hub.commit(
                "m" + stream,
                stream,
                lease=lease,
                expected_revision=0,
                events=[NewJournalEvent(stream, "noted")],
            )
            assert [event.event_id for event in (await anext(watch)).events] == [stream]


def test_a_client_without_a_token_or_with_another_hub_project_is_told(secured_hub: SecuredHub) -> None:
    address = secured_hub.hub.address
    with HubClient.connect(address, hub_project="one") as nobody:
        assert refusal_of(lambda: list(nobody.list_runs())) == (
            grpc.StatusCode.UNAUTHENTICATED,
            "CREDENTIAL_MISSING",
        )
    token = Credentials(token=secured_hub.bearers["one/reader"].bearer_token)
    with HubClient.connect(address, hub_project="two", credentials=token) as stranger:
        assert refusal_of(lambda: list(stranger.list_runs())) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "IDENTITY_MISMATCH",
        )


def test_a_revoked_token_is_told_and_its_successor_is_shown_by_the_same_client(
    hub: HubClient, tokens: Tokens
) -> None:
    run = new_run()
    list(hub.push([batch(run)], runtime_id=RUNTIME))
    tokens.revoke()
    assert refusal_of(lambda: hub.get_run(run)) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_REVOKED")
    tokens.renew()

    def is_read() -> bool:
        try:
            return hub.get_run(run).cursor == 1
        except HubCallError:
            return False  # the file is looked at once a second

    until(is_read)


def test_a_lease_is_kept_while_its_holders_token_is_replaced(hub: HubClient, tokens: Tokens) -> None:
    resource = uuid4().hex
    with hub.lease(resource, ttl_seconds=3.0) as lease:
        before = hub.get_lease(resource).expire_time_nanos or 0
        tokens.revoke()
        tokens.renew()

        def is_renewed() -> bool:
            try:
                return (hub.get_lease(resource).expire_time_nanos or 0) > before
            except HubCallError:
                return False

        until(is_renewed)
        lease.check()


def hub_shows_the_newest(hub: HubClient, tokens: Tokens) -> bool:
    return hub._journal.channel.credentials.current().token == tokens.newest


def commit_one(hub: HubClient, lease: Lease, *, revision: int) -> str:
    """Commit an event and return its id."""
    event_id = uuid4().hex
    events = [NewJournalEvent(event_id, "noted")]
    stream = lease.credential.resource
    hub.commit("m" + event_id, stream, lease=lease, expected_revision=revision, events=events)
    return event_id


def first_event(watch: JournalWatch) -> str:
    return next(event.event_id for update in watch for event in update.events)


def test_a_watch_goes_on_when_its_token_is_replaced_and_then_revoked(
    secured_hub: SecuredHub, hub: HubClient, tokens: Tokens
) -> None:
    with hub.lease(uuid4().hex) as lease, hub.watch_journal(from_now=True) as watch:
        next(watch)
        tokens.renew()
        # What is open goes on with the token that it was opened with, and ends with it.
        assert commit_one(hub, lease, revision=0) == first_event(watch)
        until(lambda: hub_shows_the_newest(hub, tokens))
        tokens.revoke_older()
        assert commit_one(hub, lease, revision=1) == first_event(watch)


async def test_a_watch_that_is_awaited_goes_on_so_too(secured_hub: SecuredHub, tokens: Tokens) -> None:
    client = await AsyncHubClient.connect(
        secured_hub.hub.address, credentials=tokens.credentials, runtime_id=RUNTIME
    )
    async with client as hub, hub.watch_journal(from_now=True) as watch:
        await anext(watch)
        tokens.renew()
        tokens.revoke_older()
        # The first answer of the stream that goes on.
        assert (await anext(watch)).events == ()


def test_a_watch_whose_token_is_revoked_and_not_replaced_is_told(hub: HubClient, tokens: Tokens) -> None:
    with hub.watch_journal(from_now=True) as watch:
        next(watch)
        tokens.revoke()
        assert refusal_of(lambda: list(watch)) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_REVOKED")


def test_a_read_model_is_of_a_hub_project_that_is_named(hub: HubClient, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="connect its client with hub_project"):
        ProjectionRunner(hub, tmp_path / "model", name="m", reset=lambda _: None, apply=lambda _, __: None)
    assert not (tmp_path / "model").exists()
