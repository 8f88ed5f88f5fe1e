"""The way to the writer from its loop: what waits is bounded in bytes, first come, first served."""

import asyncio

import pytest

from hub.core.errors import HubStopping, RateLimited
from hub.core.limits import Limits
from hub.service.writer import Command, Lane
from hub.store.store import SqlStore
from tests.unit.hub.gate import Gate


@pytest.fixture
def gate(store: SqlStore) -> Gate:
    return Gate(store, Limits(writer_queue_bytes_max=10))


class Calls:
    """Commands that were submitted through the loop, and the order in which they ran."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.ran: list[str] = []

    def submit(
        self, name: str, bytes_count: int, *, lane: Lane = Lane.INGEST, hub_project: str = "h"
    ) -> "asyncio.Task[asyncio.Future[None]]":
        command: Command[None] = lambda _transaction, _now: self.ran.append(name)  # noqa: E731
        submission = self.gate.async_writer.submit(
            command, lane=lane, bytes_count=bytes_count, hub_project=hub_project
        )
        return asyncio.get_running_loop().create_task(submission)

    async def step(self) -> None:
        await settled()
        self.gate.writer.step()
        await settled()


def bytes_queued(gate: Gate) -> int:
    return sum(gate.async_writer.bytes_queued().values())


async def settled() -> None:
    """Let every task go on as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_does_not_fit_waits_until_something_is_done(gate: Gate) -> None:
    calls = Calls(gate)
    first, second = calls.submit("first", 8), calls.submit("second", 3)
    await settled()
    assert (first.done(), second.done(), bytes_queued(gate)) == (True, False, 8)
    await calls.step()
    assert (calls.ran, second.done(), bytes_queued(gate)) == (["first"], True, 3)
    await calls.step()
    assert (calls.ran, bytes_queued(gate)) == (["first", "second"], 0)
    await first.result()
    await second.result()


async def test_one_that_is_larger_than_the_bound_runs_alone(gate: Gate) -> None:
    calls = Calls(gate)
    calls.submit("huge", 50)
    await settled()
    small = calls.submit("small", 1)
    await settled()
    assert not small.done()
    await calls.step()
    await calls.step()
    assert calls.ran == ["huge", "small"]


async def test_nobody_overtakes_one_that_waits_however_small(gate: Gate) -> None:
    calls = Calls(gate)
    calls.submit("running", 8)
    await settled()
    calls.submit("large", 9)
    await settled()
    smalls = [calls.submit(f"small {n}", 1) for n in range(2)]
    await settled()
    assert [each.done() for each in smalls] == [False, False]
    for _ in range(3):
        await calls.step()
    assert calls.ran == ["running", "large", "small 0", "small 1"]


async def test_all_that_fit_again_go_on_at_once(gate: Gate) -> None:
    calls = Calls(gate)
    calls.submit("running", 10)
    await settled()
    waiting = [calls.submit(f"{n}", 3) for n in range(4)]
    await calls.step()
    assert [each.done() for each in waiting] == [True, True, True, False]
    assert bytes_queued(gate) == 9
    for _ in range(2):
        await calls.step()
    assert (calls.ran, bytes_queued(gate)) == (["running", "0", "1", "2", "3"], 0)


@pytest.mark.parametrize("is_admitted", [False, True])
async def test_one_that_gives_up_waiting_leaves_its_place_to_the_next(gate: Gate, is_admitted: bool) -> None:
    calls = Calls(gate)
    calls.submit("running", 10)
    await settled()
    impatient = calls.submit("impatient", 10)
    await settled()
    next_one = calls.submit("next", 10)
    await settled()
    if is_admitted:
        # Its turn has come, and it is cancelled before it could take it.
        gate.writer.step()
    impatient.cancel()
    for _ in range(2):
        await calls.step()
    assert (impatient.cancelled(), next_one.done()) == (True, True)
    assert (calls.ran, bytes_queued(gate)) == (["running", "next"], 0)


async def test_control_never_waits_for_bytes(gate: Gate) -> None:
    calls = Calls(gate)
    calls.submit("running", 10)
    await settled()
    calls.submit("waiting", 10)
    control = asyncio.ensure_future(gate.async_writer.call(lambda _transaction, _now: "granted"))
    await calls.step()
    assert await control == "granted"


async def test_a_commit_of_the_journal_needs_room_among_commits_alone(gate: Gate) -> None:
    calls = Calls(gate)
    ingest = [calls.submit(f"ingest {n}", 10) for n in range(3)]
    await settled()
    commit = calls.submit("commit", 6, lane=Lane.JOURNAL)
    await settled()
    assert [each.done() for each in [*ingest, commit]] == [True, False, False, True]
    assert bytes_queued(gate) == 16
    await calls.step()
    assert calls.ran[0] == "commit"
    for _ in range(3):
        await calls.step()
    assert (len(calls.ran), bytes_queued(gate)) == (4, 0)


async def test_a_refused_submission_holds_no_bytes(gate: Gate) -> None:
    gate.writer.stop()
    with pytest.raises(HubStopping):
        await gate.async_writer.submit(lambda _transaction, _now: None, lane=Lane.INGEST, bytes_count=10)
    assert bytes_queued(gate) == 0


async def test_a_caller_that_went_away_does_not_disturb_the_delivery(gate: Gate) -> None:
    calls = Calls(gate)
    gone, there = await calls.submit("gone", 1), await calls.submit("there", 1)
    gone.cancel()
    await calls.step()
    await there
    assert (calls.ran, bytes_queued(gate)) == (["gone", "there"], 0)


async def test_a_commit_for_which_there_is_no_room_is_refused_and_not_kept_in_memory(gate: Gate) -> None:
    calls = Calls(gate)
    first = calls.submit("first", 8, lane=Lane.JOURNAL)
    second = calls.submit("second", 3, lane=Lane.JOURNAL)
    await settled()
    assert first.done()
    with pytest.raises(RateLimited, match="writer_queue_bytes_max of 10"):
        await second
    assert bytes_queued(gate) == 8
    await calls.step()
    third = calls.submit("third", 3, lane=Lane.JOURNAL)
    await calls.step()
    assert (calls.ran, third.done(), bytes_queued(gate)) == (["first", "third"], True, 0)
    await first.result()
    await third.result()


@pytest.fixture
def shared_gate(store: SqlStore) -> Gate:
    return Gate(store, Limits(writer_queue_bytes_max=10, writer_queue_hub_project_bytes_max=4))


async def test_a_hub_project_that_has_its_part_of_the_queue_waits_while_others_go_on(
    shared_gate: Gate,
) -> None:
    calls = Calls(shared_gate)
    flood = [calls.submit(f"flood {n}", 2) for n in range(5)]
    await settled()
    quiet = calls.submit("quiet", 2, hub_project="other")
    await settled()
    assert [each.done() for each in [*flood, quiet]] == [True, True, False, False, False, True]
    assert bytes_queued(shared_gate) == 6
    for _ in range(3):
        await calls.step()
    # Within a hub project the order is kept.
    assert [each for each in calls.ran if each != "quiet"] == [f"flood {n}" for n in range(5)]
    assert calls.ran.index("quiet") < 4
    assert bytes_queued(shared_gate) == 0


async def test_when_the_queue_has_room_again_hub_projects_have_turns(shared_gate: Gate) -> None:
    calls = Calls(shared_gate)
    for hub_project in ("a", "b", "c"):
        calls.submit(f"{hub_project} runs", 4 if hub_project != "c" else 2, hub_project=hub_project)
    await settled()
    flood = [calls.submit(f"a {n}", 1, hub_project="a") for n in range(6)]
    await settled()
    quiet = calls.submit("quiet", 1, hub_project="quiet")
    await settled()
    assert [each.done() for each in [*flood, quiet]] == [False] * 7
    await calls.step()
    assert [each.done() for each in [*flood, quiet]] == [True] * 4 + [False] * 2 + [True]
    for _ in range(3):
        await calls.step()
    assert bytes_queued(shared_gate) == 0


async def test_a_large_one_of_a_quiet_hub_project_is_not_overtaken_for_ever(store: SqlStore) -> None:
    gate = Gate(store, Limits(writer_queue_bytes_max=10, writer_queue_hub_project_bytes_max=10))
    calls = Calls(gate)
    calls.submit("running", 4)
    await settled()
    large = calls.submit("large", 9, hub_project="other")
    await settled()
    small = calls.submit("small", 1)
    await settled()
    assert (large.done(), small.done()) == (False, False)
    for _ in range(3):
        await calls.step()
    assert calls.ran == ["running", "large", "small"]


async def test_a_commit_above_its_hub_projects_part_is_refused_and_names_it(shared_gate: Gate) -> None:
    calls = Calls(shared_gate)
    first = calls.submit("first", 3, lane=Lane.JOURNAL)
    await settled()
    second = calls.submit("second", 2, lane=Lane.JOURNAL)
    other = calls.submit("other", 2, lane=Lane.JOURNAL, hub_project="other")
    await settled()
    assert (first.done(), other.done()) == (True, True)
    with pytest.raises(RateLimited, match="writer_queue_hub_project_bytes_max of 4"):
        await second
    assert bytes_queued(shared_gate) == 5
    await calls.step()
    assert (calls.ran, bytes_queued(shared_gate)) == (["first", "other"], 0)
    await first.result()
    await other.result()


async def test_one_that_gives_up_waiting_does_not_hold_up_other_hub_projects(shared_gate: Gate) -> None:
    calls = Calls(shared_gate)
    calls.submit("running", 8)
    await settled()
    impatient = calls.submit("impatient", 4, hub_project="other")
    await settled()
    small = calls.submit("small", 1, hub_project="third")
    await settled()
    assert not small.done()
    impatient.cancel()
    await settled()
    assert small.done()
    await calls.step()
    assert (calls.ran, bytes_queued(shared_gate)) == (["running", "small"], 0)
