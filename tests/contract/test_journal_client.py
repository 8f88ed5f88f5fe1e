"""The journal's client against a real hub: commits, reads, refusals, and what goes on through failures."""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hub.config import Endpoint
from runtime_agent.core.journal_errors import (
    IdempotencyConflict,
    RevisionConflict,
    StaleCause,
    StaleLease,
)
from runtime_agent.core.lease_errors import LeaseNotHeld
from runtime_agent.hub_client.async_client import AsyncHubClient
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import (
    JournalEvent,
    NewJournalEvent,
    NewOutboxMessage,
    NewProjection,
    OutboxOutcome,
    OutboxState,
)
from runtime_agent.hub_client.lease_channel import ClientClosed
from tests.contract.conftest import settings_in
from tests.contract.holding import InBackground, until
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journaling import TRACE_ID
from tests.robustness.tcp_proxy import TcpProxy


@pytest.fixture
def hub(grpc_addr: str, hub_project: str) -> Iterator[HubClient]:
    with HubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime") as client:
        yield client


@pytest.fixture
async def async_hub(grpc_addr: str, hub_project: str) -> AsyncIterator[AsyncHubClient]:
    client = await AsyncHubClient.connect(grpc_addr, hub_project=hub_project, runtime_id="runtime")
    async with client:
        yield client


def numbered(first: int, last: int, *, event_type: str = "noted") -> list[NewJournalEvent]:
    return [NewJournalEvent(f"e{n}", event_type, f"payload {n}".encode()) for n in range(first, last + 1)]


def ids(events: Iterator[JournalEvent]) -> list[str]:
    return [event.event_id for event in events]


# --- commits ---


def test_a_commit_stores_all_of_it_and_each_part_is_read_back(hub: HubClient) -> None:
    with hub.lease("s", holder_id="a") as lease:
        committed = hub.commit(
            "m1",
            "s",
            lease=lease,
            expected_revision=0,
            events=[
                NewJournalEvent(
                    "é1",
                    "order.placed",
                    b"\0\xff",
                    event_time_nanos=-1,
                    correlation_id="cor",
                    causation_id="cau",
                    trace_id=TRACE_ID,
                ),
                NewJournalEvent("e2", "order.paid"),
            ],
            outbox_messages=[
                NewOutboxMessage(
                    "o1", "mail", b"\xff", event_id="é1", ordering_key="k", available_time_nanos=5
                )
            ],
            projections=[NewProjection("p1", b"\0v")],
            reply=b"\0reply",
        )
    assert (committed.previous_revision, committed.revision, committed.is_recovered) == (0, 2, False)
    assert (committed.positions, committed.reply) == ((1, 2), b"\0reply")
    moment = committed.commit_time_nanos
    assert list(hub.stream_events("s")) == [
        JournalEvent(
            stream_id="s",
            revision=1,
            position=1,
            event_id="é1",
            event_type="order.placed",
            payload=b"\0\xff",
            event_time_nanos=-1,
            commit_time_nanos=moment,
            message_id="m1",
            correlation_id="cor",
            causation_id="cau",
            trace_id=TRACE_ID,
            fencing_token=1,
            epoch=0,
        ),
        JournalEvent("s", 2, 2, "e2", "order.paid", b"", moment, moment, "m1", "", "", "", 1, 0),
    ]
    (message,) = hub.list_outbox()
    assert (message.outbox_id, message.event_id, message.destination) == ("o1", "é1", "mail")
    assert (message.ordering_key, message.payload, message.state) == ("k", b"\xff", OutboxState.PENDING)
    assert (message.stream_id, message.message_id, message.attempt_count) == ("s", "m1", 0)
    assert (message.available_time_nanos, message.create_time_nanos) == (5, moment)
    projection = hub.get_projection("p1")
    assert (projection.stream_id, projection.value, projection.revision) == ("s", b"\0v", 2)
    (stream,) = hub.list_streams()
    assert (stream.stream_id, stream.revision, stream.fencing_token) == ("s", 2, 1)
    assert (stream.is_leased, stream.last_commit_time_nanos) == (False, moment)


def test_the_same_message_id_gives_the_stored_result_whoever_has_the_lease(hub: HubClient) -> None:
    with hub.lease("s", holder_id="a") as first:
        committed = hub.commit("m1", "s", lease=first, expected_revision=0, events=numbered(1, 1))
        late = first.credential
    with hub.lease("s", holder_id="b"):
        recovered = hub.commit("m1", "s", lease=late, expected_revision=0, events=numbered(1, 1))
    assert recovered.is_recovered
    assert (recovered.revision, recovered.positions) == (committed.revision, committed.positions)
    assert recovered.commit_time_nanos == committed.commit_time_nanos


def test_a_lease_that_was_lost_writes_nothing_and_is_told_why(hub: HubClient) -> None:
    first = hub.lease("s", holder_id="a").acquire()
    with hub.lease("s", holder_id="a", ttl_seconds=30) as second:
        with pytest.raises(StaleLease) as caught:
            hub.commit("m1", "s", lease=first, expected_revision=0, events=numbered(1, 1))
        assert (caught.value.stream_id, caught.value.fencing_token) == ("s", 1)
        assert caught.value.cause is StaleCause.SUPERSEDED
        assert list(hub.list_streams()) == []
        assert hub.commit("m1", "s", lease=second, expected_revision=0, events=numbered(1, 1)).revision == 1


def test_each_cause_of_a_stale_lease_is_named(hub: HubClient) -> None:
    with hub.lease("other") as other, pytest.raises(StaleLease) as caught:
        hub.commit("m1", "s", lease=other, expected_revision=0)
    assert caught.value.cause is StaleCause.OTHER_RESOURCE
    with hub.lease("s") as lease:
        credential = lease.credential
    with pytest.raises(StaleLease) as caught:
        hub.commit("m1", "s", lease=credential, expected_revision=0)
    assert caught.value.cause is StaleCause.MISSING
    with hub.maintenance("s"):
        with pytest.raises(StaleLease) as caught:
            hub.commit("m1", "s", lease=credential, expected_revision=0)
        assert caught.value.cause is StaleCause.FENCED


def test_a_maintenance_may_commit_too(hub: HubClient) -> None:
    with hub.maintenance("s") as maintenance:
        assert hub.commit("m1", "s", lease=maintenance, expected_revision=0, events=numbered(1, 1)).revision


def test_a_turn_may_commit_to_the_stream_of_its_resource(hub: HubClient) -> None:
    with hub.turn("roses", query_id="q", origin="test") as turn:
        committed = hub.commit("m1", turn.resource, lease=turn, expected_revision=0, events=numbered(1, 1))
    assert committed.revision == 1


def test_a_credential_is_never_printed_with_its_secret(hub: HubClient) -> None:
    with hub.lease("s") as lease:
        assert lease.credential.nonce
        assert lease.credential.nonce not in f"{lease.credential!r} {lease!r}"


def test_a_lease_that_was_never_acquired_asks_no_hub(hub: HubClient) -> None:
    with pytest.raises(LeaseNotHeld):
        hub.commit("m1", "s", lease=hub.lease("s"), expected_revision=0)


def test_a_revision_that_is_not_the_streams_is_told_with_both(hub: HubClient) -> None:
    with hub.lease("s") as lease:
        hub.commit("m1", "s", lease=lease, expected_revision=0, events=numbered(1, 2))
        with pytest.raises(RevisionConflict) as caught:
            hub.commit("m2", "s", lease=lease, expected_revision=1, events=numbered(3, 3))
        assert (caught.value.stream_id, caught.value.expected_revision) == ("s", 1)
        assert caught.value.actual_revision == 2
    assert ids(hub.stream_events("s")) == ["e1", "e2"]


def test_an_id_that_was_used_is_named_with_its_field(hub: HubClient) -> None:
    with hub.lease("s") as lease:
        hub.commit("m1", "s", lease=lease, expected_revision=0, events=numbered(1, 1))
        for message_id, field, used in (("m1", "message_id", "m1"), ("m2", "events[1].event_id", "e1")):
            with pytest.raises(IdempotencyConflict) as caught:
                hub.commit(
                    message_id,
                    "s",
                    lease=lease,
                    expected_revision=1,
                    events=[NewJournalEvent("new", "noted"), *numbered(1, 1)],
                )
            assert (caught.value.field, caught.value.id) == (field, used)
    assert ids(hub.stream_events("s")) == ["e1"]


def test_a_bad_commit_is_refused_at_once_with_its_field(hub: HubClient) -> None:
    with hub.lease("s") as lease, pytest.raises(HubCallError) as caught:
        hub.commit("m1", "s", lease=lease, expected_revision=-1)
    assert caught.value.reason == "INVALID_REQUEST"
    assert [each.field for each in caught.value.refusal.violations] == ["expected_revision"]


def test_a_commit_whose_answer_was_lost_is_sent_again_and_happens_once(
    hub: HubClient, grpc_addr: str, hub_project: str, *, rng: random.Random
) -> None:
    with (
        hub.lease("s") as lease,
        TcpProxy(grpc_addr, rng) as proxy,
        HubClient.connect(proxy.address, hub_project=hub_project) as behind,
    ):
        assert list(behind.list_streams()) == []
        results = []
        proxy.drops_answers = True
        committing = InBackground(
            lambda: results.append(
                behind.commit("m1", "s", lease=lease, expected_revision=0, events=numbered(1, 3))
            )
        )
        until(lambda: len(list(hub.stream_events("s"))) == 3)
        assert not committing.is_over
        proxy.drops_answers = False
        proxy.cut_all()
        committing.result()
        assert (results[0].is_recovered, results[0].revision) == (True, 3)
    assert ids(hub.stream_events("s")) == ["e1", "e2", "e3"]


def test_a_commit_waits_for_a_hub_that_starts_again(tmp_path: Path, hub_project: str) -> None:
    settings = settings_in(tmp_path)
    results = []
    with ExitStack() as held:
        with HubInThread(settings) as first:
            address = first.address
            hub = held.enter_context(HubClient.connect(address, hub_project=hub_project))
            lease = hub.lease("s", ttl_seconds=600).acquire()
        committing = InBackground(
            lambda: results.append(hub.commit("m1", "s", lease=lease, expected_revision=0))
        )
        host, _, port = address.rpartition(":")
        with HubInThread(replace(settings, listen=Endpoint(host, int(port)))):
            committing.result()
    assert [each.is_recovered for each in results] == [False]


def test_a_commit_that_no_hub_hears_is_given_up_in_time(hub: HubClient, hub_project: str) -> None:
    with (
        hub.lease("s") as lease,
        HubClient.connect("127.0.0.1:1", hub_project=hub_project) as nowhere,
        pytest.raises(HubCallError) as caught,
    ):
        nowhere.commit("m1", "s", lease=lease, expected_revision=0, seconds_max=0.3)
    assert caught.value.reason == ""


def test_a_closed_client_says_so_at_once(grpc_addr: str, hub: HubClient, hub_project: str) -> None:
    closed = HubClient.connect(grpc_addr, hub_project=hub_project)
    closed.close()
    with hub.lease("s") as lease, pytest.raises(ClientClosed):
        closed.commit("m1", "s", lease=lease, expected_revision=0)
    with pytest.raises(ClientClosed):
        list(closed.list_streams())
    with pytest.raises(ClientClosed):
        closed.watch_journal()
    with pytest.raises(ClientClosed):
        closed.outbox("mail")


# --- reads ---


def test_a_stream_is_read_page_by_page_up_to_where_it_was_at_the_first(hub: HubClient) -> None:
    with hub.lease("s") as lease:
        for n in range(3):
            first = 1 + 100 * n
            hub.commit(
                f"m{n}", "s", lease=lease, expected_revision=first - 1, events=numbered(first, first + 99)
            )
        reading = hub.stream_events("s")
        seen = [next(reading).event_id]
        hub.commit("late", "s", lease=lease, expected_revision=300, events=numbered(301, 301))
        seen += ids(reading)
    assert seen == [f"e{n}" for n in range(1, 301)]
    assert ids(hub.stream_events("s", after_revision=299)) == ["e300", "e301"]
    assert ids(hub.stream_events("s", after_revision=1, through_revision=2)) == ["e2"]
    assert ids(hub.stream_events("nobody's")) == []


def test_a_fenced_read_is_for_the_holder_alone(hub: HubClient) -> None:
    with hub.lease("s", holder_id="a") as lease:
        hub.commit("m1", "s", lease=lease, expected_revision=0, events=numbered(1, 1))
        assert ids(hub.stream_events("s", lease=lease)) == ["e1"]
    with pytest.raises(StaleLease) as caught:
        list(hub.stream_events("s", lease=lease))
    assert caught.value.cause is StaleCause.MISSING


def test_streams_are_listed_by_prefix_and_type_over_pages(hub: HubClient) -> None:
    for n in range(140):
        with hub.lease(f"a%{n:03}") as lease:
            kind = "rare" if n % 70 == 0 else "noted"
            hub.commit(
                f"m{n}",
                f"a%{n:03}",
                lease=lease,
                expected_revision=0,
                events=[NewJournalEvent(f"e{n}", kind)],
            )
    assert [each.stream_id for each in hub.list_streams(prefix="a%")] == [f"a%{n:03}" for n in range(140)]
    assert [each.stream_id for each in hub.list_streams(event_type="rare")] == ["a%000", "a%070"]
    assert list(hub.list_streams(prefix="a_")) == []


def test_a_projection_that_nobody_set_is_not_found(hub: HubClient) -> None:
    with pytest.raises(HubCallError) as caught:
        hub.get_projection("p")
    assert caught.value.reason == "NOT_FOUND"


def test_the_journal_is_listed_over_all_streams_and_read_on_from_a_page(hub: HubClient) -> None:
    with hub.lease("s") as lease, hub.lease("t") as other:
        hub.commit("m1", "s", lease=lease, expected_revision=0, events=numbered(1, 2))
        hub.commit("m2", "t", lease=other, expected_revision=0, events=numbered(3, 3, event_type="rare"))
        (page,) = hub.list_journal()
        assert [(each.stream_id, each.position) for each in page.events] == [("s", 1), ("s", 2), ("t", 3)]
        assert page.progress_position == 3
        hub.commit("m3", "t", lease=other, expected_revision=1, events=numbered(4, 4))
        (more,) = hub.list_journal(after_position=3, hub_generation=page.hub_generation)
        assert [each.event_id for each in more.events] == ["e4"]
        (rare,) = hub.list_journal(event_types=["rare"])
        assert [each.event_id for each in rare.events] == ["e3"]


# --- the outbox by single calls ---


def test_a_message_is_claimed_returned_claimed_again_and_acknowledged(hub: HubClient) -> None:
    with hub.lease("s") as lease:
        messages = [NewOutboxMessage("o1", "mail", b"1"), NewOutboxMessage("o2", "other")]
        hub.commit("m1", "s", lease=lease, expected_revision=0, outbox_messages=messages)
    claimed = hub.claim_outbox("mail", visibility_seconds=60)
    (first,) = claimed.messages
    assert (first.message.outbox_id, first.message.attempt_count) == ("o1", 1)
    assert first.message.state is OutboxState.CLAIMED
    assert claimed.claim_expire_time_nanos == first.message.available_time_nanos
    assert hub.claim_outbox("mail").messages == ()
    returned = hub.return_outbox("o1", first.claim_id)
    assert (returned.outcome, returned.state) == (OutboxOutcome.DONE, OutboxState.PENDING)
    assert hub.acknowledge_outbox("o1", first.claim_id) is OutboxOutcome.CLAIM_LOST
    (again,) = hub.claim_outbox("mail").messages
    assert again.message.attempt_count == 2
    assert hub.acknowledge_outbox("o1", again.claim_id) is OutboxOutcome.DONE
    assert hub.acknowledge_outbox("o1", again.claim_id) is OutboxOutcome.ALREADY_DELIVERED
    assert [each.outbox_id for each in hub.list_outbox()] == ["o2"]
    assert [each.outbox_id for each in hub.list_outbox(state=OutboxState.DELIVERED)] == ["o1"]
    assert hub.release_outbox("o2").state is OutboxState.PENDING


def test_a_claim_that_finds_nothing_says_when_something_is_due(hub: HubClient) -> None:
    assert hub.claim_outbox("mail").next_available_time_nanos is None
    with hub.lease("s") as lease:
        later = NewOutboxMessage("o1", "mail", available_time_nanos=2**62)
        hub.commit("m1", "s", lease=lease, expected_revision=0, outbox_messages=[later])
    claimed = hub.claim_outbox("mail")
    assert (claimed.messages, claimed.next_available_time_nanos) == ((), 2**62)


# --- the twin ---


async def test_each_call_of_the_twin_does_the_same(async_hub: AsyncHubClient) -> None:
    hub = async_hub
    async with hub.lease("s") as lease:
        committed = await hub.commit(
            "m1",
            "s",
            lease=lease,
            expected_revision=0,
            events=numbered(1, 100),
            outbox_messages=[NewOutboxMessage("o1", "mail"), NewOutboxMessage("o2", "mail")],
            projections=[NewProjection("p1", b"v")],
        )
        assert committed.revision == 100
        await hub.commit("m2", "s", lease=lease, expected_revision=100, events=numbered(101, 200))
        with pytest.raises(RevisionConflict):
            await hub.commit("m3", "s", lease=lease, expected_revision=1)
        with pytest.raises(LeaseNotHeld):
            await hub.commit("m3", "s", lease=hub.lease("t"), expected_revision=0)
        assert [each.revision async for each in hub.stream_events("s", lease=lease)] == list(range(1, 201))
    assert [each.stream_id async for each in hub.list_streams(prefix="s")] == ["s"]
    assert (await hub.get_projection("p1")).value == b"v"
    pages = [page async for page in hub.list_journal()]
    assert [each.position for page in pages for each in page.events] == list(range(1, 201))
    assert [each.outbox_id async for each in hub.list_outbox(destination="mail")] == ["o1", "o2"]
    first, second = (await hub.claim_outbox("mail")).messages
    assert await hub.acknowledge_outbox("o1", first.claim_id) is OutboxOutcome.DONE
    assert (await hub.return_outbox("o2", second.claim_id)).state is OutboxState.PENDING
    assert (await hub.release_outbox("o2")).attempt_count == 1


async def test_a_closed_twin_says_so_at_once(grpc_addr: str, hub_project: str) -> None:
    closed = await AsyncHubClient.connect(grpc_addr, hub_project=hub_project)
    await closed.close()
    with pytest.raises(ClientClosed):
        await closed.get_projection("p1")
    with pytest.raises(ClientClosed):
        closed.watch_journal()
    with pytest.raises(ClientClosed):
        closed.outbox("mail")
