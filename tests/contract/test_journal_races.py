"""Two who write at once: of each revision of a stream there is exactly one winner."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import grpc.aio
import pytest

from synchub.channel import Refusal, refusal_from_error
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journaling import (
    claimed_ids,
    commit_request,
    leased,
    new_event,
    new_message,
    stream_events,
)
from tests.contract.leasing import CALL_SECONDS_MAX

ROUNDS: Final = 1_000
ROUNDS_LONG: Final = 10_000
COPIES: Final = 8

Outcome = messages.CommitResponse | Refusal


async def outcome_of(call: Awaitable[messages.CommitResponse]) -> Outcome:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        return refusal_from_error(error)


class Racing:
    """Calls of one hub that are sent at once, over connections of their own."""

    def __init__(self, address: str, *, channels: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(channels)]
        self.stubs = [JournalServiceStub(channel) for channel in self._channels]

    async def commit_at_once(self, requests: list[messages.CommitRequest]) -> list[Outcome]:
        calls = [
            outcome_of(stub.Commit(request, timeout=CALL_SECONDS_MAX))
            for stub, request in zip(self.stubs, requests, strict=True)
        ]
        return list(await asyncio.gather(*calls))

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


def race(address: str, work: Callable[[Racing], Coroutine[None, None, None]], *, channels: int = 2) -> None:
    """Run something on a loop of its own, beside the hub's."""

    async def run() -> None:
        racing = Racing(address, channels=channels)
        try:
            await work(racing)
        finally:
            await racing.close()

    asyncio.run(run())


@pytest.mark.timeout(600)
def test_of_two_writers_with_the_same_expected_revision_exactly_one_wins_each_round(
    grpc_server: HubInThread,
    journal_stub: JournalServiceStub,
    lease_stub: LeaseServiceStub,
    *,
    hub_project: str,
    rng: random.Random,
    long_run: bool,
) -> None:
    rounds = ROUNDS_LONG if long_run else ROUNDS
    credential = leased(lease_stub, hub_project)
    won: list[str] = []

    async def work(racing: Racing) -> None:
        for revision in range(rounds):
            requests = [
                commit_request(
                    hub_project,
                    credential,
                    message_id=f"{name}{revision}",
                    expected_revision=revision,
                    events=[new_event(f"{name}{revision}")],
                )
                for name in rng.sample("ab", 2)
            ]
            outcomes = await racing.commit_at_once(requests)
            (winner,) = (n for n, each in enumerate(outcomes) if isinstance(each, messages.CommitResponse))
            answer, refusal = outcomes[winner], outcomes[1 - winner]
            assert isinstance(answer, messages.CommitResponse)
            assert (answer.previous_revision, answer.revision, answer.recovered) == (
                revision,
                revision + 1,
                False,
            )
            assert isinstance(refusal, Refusal)
            assert (refusal.reason, refusal.metadata) == (
                "REVISION_CONFLICT",
                {
                    "streamId": "s",
                    "expectedRevision": str(revision),
                    "actualRevision": str(revision + 1),
                },
            )
            won.append(requests[winner].message_id)

    race(grpc_server.address, work)
    assert len(won) == rounds
    events = stream_events(journal_stub, hub_project)
    assert [event.event_id for event in events] == won
    assert [event.revision for event in events] == list(range(1, rounds + 1))
    # Both of them win now and then: else they were not racing.
    assert {name[0] for name in won} == {"a", "b"}


def test_of_many_copies_of_a_commit_one_is_new_and_all_are_answered_alike(
    grpc_server: HubInThread,
    journal_stub: JournalServiceStub,
    lease_stub: LeaseServiceStub,
    *,
    hub_project: str,
) -> None:
    credential = leased(lease_stub, hub_project)
    rounds = 50

    async def work(racing: Racing) -> None:
        for revision in range(rounds):
            request = commit_request(
                hub_project,
                credential,
                message_id=f"m{revision}",
                expected_revision=revision,
                events=[new_event(f"e{revision}")],
                reply=b"reply",
            )
            outcomes = await racing.commit_at_once([request] * COPIES)
            answers = [each for each in outcomes if isinstance(each, messages.CommitResponse)]
            assert len(answers) == COPIES
            assert sorted(answer.recovered for answer in answers) == [False] + [True] * (COPIES - 1)
            for answer in answers:
                answer.recovered = False
            assert answers == [answers[0]] * COPIES

    race(grpc_server.address, work, channels=COPIES)
    assert len(stream_events(journal_stub, hub_project)) == rounds


def test_positions_rise_in_the_order_of_revisions_although_streams_race(
    grpc_server: HubInThread,
    journal_stub: JournalServiceStub,
    lease_stub: LeaseServiceStub,
    *,
    hub_project: str,
) -> None:
    names = [f"s{n}" for n in range(COPIES)]
    credentials = [leased(lease_stub, hub_project, name) for name in names]
    rounds = 40

    async def work(racing: Racing) -> None:
        for revision in range(0, rounds * 2, 2):
            requests = [
                commit_request(
                    hub_project,
                    credential,
                    message_id=f"{name} {revision}",
                    stream_id=name,
                    expected_revision=revision,
                    events=[new_event(f"{name} {revision + n}") for n in (1, 2)],
                )
                for name, credential in zip(names, credentials, strict=True)
            ]
            outcomes = await racing.commit_at_once(requests)
            positions = [
                list(each.positions) for each in outcomes if isinstance(each, messages.CommitResponse)
            ]
            assert all(second == first + 1 for first, second in positions)
            first_position = COPIES * revision + 1
            given = sorted(position for pair in positions for position in pair)
            assert given == list(range(first_position, first_position + 2 * COPIES))

    race(grpc_server.address, work, channels=COPIES)
    for name in names:
        events = stream_events(journal_stub, hub_project, name)
        assert [event.revision for event in events] == list(range(1, 2 * rounds + 1))
        positions = [event.position for event in events]
        assert positions == sorted(positions)


def test_of_dispatchers_that_claim_at_once_one_gets_a_message(
    grpc_server: HubInThread,
    journal_stub: JournalServiceStub,
    lease_stub: LeaseServiceStub,
    *,
    hub_project: str,
) -> None:
    credential = leased(lease_stub, hub_project)
    rounds = 50
    request = messages.ClaimOutboxMessagesRequest(hub_project=hub_project, destination="mail")

    async def work(racing: Racing) -> None:
        for n in range(rounds):
            await racing.stubs[0].Commit(
                commit_request(
                    hub_project, credential, message_id=f"m{n}", outbox_messages=[new_message(f"o{n}")]
                ),
                timeout=CALL_SECONDS_MAX,
            )
            claims = [stub.ClaimOutboxMessages(request, timeout=CALL_SECONDS_MAX) for stub in racing.stubs]
            claimed = [claimed_ids(each) for each in await asyncio.gather(*claims)]
            assert sorted(claimed) == [[]] * (COPIES - 1) + [[f"o{n}"]]

    race(grpc_server.address, work, channels=COPIES)
