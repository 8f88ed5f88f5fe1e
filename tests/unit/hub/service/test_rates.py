"""What comes at a time, held against the limits, with the clock in hand."""

import asyncio
from collections.abc import Callable

import pytest

from hub.core.errors import RateLimited
from hub.core.identity_errors import PermissionDenied
from hub.core.limits import Limits
from hub.core.reconcile import RuntimeRun
from hub.core.values import ConflictReason, HubProject, InstanceId, ProjectId, RunId, RuntimeId
from hub.service.instruments import NoInstruments
from hub.service.projects import Projects
from hub.service.rates import HubRates, Pace, ProjectGuesses
from hub.service.reconcile import ReconcileRequest
from hub.store.store import SqlStore
from synchub.contract import NANOS_PER_SECOND, chain_hash_at_start
from tests.unit.hub.gate import Gate, batch, caller_of
from tests.unit.hub.stored_runs import event

H, OTHER = HubProject("h"), HubProject("other")


class Told(NoInstruments):
    """Remembers what streams were asked to wait for."""

    def __init__(self) -> None:
        self.delays: list[tuple[str, str, float]] = []

    def rate_delayed(self, hub_project: HubProject, *, limit: str, seconds: float) -> None:
        self.delays.append((hub_project, limit, seconds))


class Rates:
    """Rates with a clock and what they told."""

    def __init__(self, limits: Limits) -> None:
        self.now = 1_000.0
        self.told = Told()
        self.rates = HubRates(limits=limits, instruments=self.told, monotonic_seconds=lambda: self.now)

    def pace(self, hub_project: HubProject = H, *, events: int = 0, size: int = 0) -> Pace:
        return self.rates.pace(hub_project, event_count=events, bytes_count=size)

    def commit(self, hub_project: HubProject = H, *, events: int = 0, size: int = 0) -> None:
        self.rates.check_commit(hub_project, event_count=events, bytes_count=size)


SLOW = Limits(hub_project_events_per_second=10, hub_project_bytes_per_second=1_000)


# --- pushes ---


def test_a_hub_project_below_its_rates_never_waits() -> None:
    rates = Rates(SLOW)
    for _ in range(5):
        assert rates.pace(events=10, size=1_000) == Pace(0.0, rates.now)
        rates.now += 1
    assert rates.told.delays == []


def test_a_batch_above_the_rate_comes_and_what_is_next_waits_for_it() -> None:
    rates = Rates(SLOW)
    assert rates.pace(events=30) == Pace(0.0, rates.now + 2.0)
    assert rates.pace(events=10) == Pace(2.0, rates.now + 3.0)
    assert rates.told.delays == [
        ("h", "hub_project_events_per_second", 2.0),
        ("h", "hub_project_events_per_second", 3.0),
    ]


def test_bytes_are_a_rate_of_their_own_and_the_slower_one_counts() -> None:
    rates = Rates(SLOW)
    assert rates.pace(events=20, size=5_000) == Pace(0.0, rates.now + 4.0)
    assert rates.told.delays == [("h", "hub_project_bytes_per_second", 4.0)]
    assert rates.pace(events=1, size=1).wait_seconds == 4.0


def test_one_hub_project_above_its_rate_does_not_slow_another() -> None:
    rates = Rates(SLOW)
    rates.pace(events=1_000)
    assert rates.pace(OTHER, events=10) == Pace(0.0, rates.now)


def test_a_batch_that_did_not_come_is_counted_out() -> None:
    rates = Rates(SLOW)
    rates.pace(events=10)
    rates.pace(events=30, size=3_000)
    rates.rates.give_back(H, event_count=30, bytes_count=3_000)
    assert rates.pace(events=10) == Pace(0.0, rates.now + 1.0)


def test_what_is_saved_up_is_bounded() -> None:
    rates = Rates(Limits(hub_project_events_per_second=10, hub_project_burst_seconds=3.0))
    rates.now += 1_000_000
    assert rates.pace(events=30) == Pace(0.0, rates.now)
    assert rates.pace(events=10) == Pace(0.0, rates.now + 1.0)


def test_how_long_it_is_until_a_moment_is_told() -> None:
    rates = Rates(SLOW)
    assert (rates.rates.remaining_seconds(1_002.5), rates.rates.remaining_seconds(5.0)) == (2.5, 0.0)


def test_by_default_a_machine_at_full_speed_is_not_slowed() -> None:
    rates = Rates(Limits())
    for _ in range(100):
        # More than was ever measured here.
        assert rates.pace(events=5_000, size=5_000_000) == Pace(0.0, rates.now)
        rates.now += 0.01


# --- commits ---


@pytest.mark.parametrize(
    ("events", "size", "limit", "value"),
    [(30, 0, "hub_project_events_per_second", 10), (0, 3_000, "hub_project_bytes_per_second", 1_000)],
)
def test_a_commit_of_a_hub_project_in_debt_is_refused_and_told_when_to_come_again(
    events: int, size: int, limit: str, value: int
) -> None:
    rates = Rates(SLOW)
    rates.commit(events=events, size=size)
    for _ in range(2):
        with pytest.raises(RateLimited) as caught:
            rates.commit(events=1, size=1)
        refusal = caught.value
        assert (refusal.limit, refusal.limit_value, refusal.retry_seconds()) == (limit, value, 2.0)
    rates.commit(OTHER, events=1, size=1)
    rates.now += 2
    rates.commit(events=1, size=1)


def test_pushes_and_commits_of_a_hub_project_share_its_rates() -> None:
    rates = Rates(SLOW)
    rates.pace(events=20)
    with pytest.raises(RateLimited):
        rates.commit(events=1)


# --- calls ---


def calls_until_refused(check: Callable[[], None]) -> int:
    for count in range(100):
        refusal = refusal_of(check)
        if refusal is not None:
            assert refusal.limit == "credential_requests_per_second"
            assert 0 < (refusal.retry_seconds() or 0) <= 1
            return count
    raise AssertionError("it is never refused")


def refusal_of(check: Callable[[], None]) -> RateLimited | None:
    try:
        check()
    except RateLimited as refusal:
        return refusal
    return None


def test_a_credential_makes_so_many_calls_at_once_and_then_as_the_rate_gives() -> None:
    rates = Rates(Limits(credential_requests_per_second=2, credential_requests_burst=6))
    assert calls_until_refused(lambda: rates.rates.check_call("token", "ipv4:10.0.0.1:1")) in (6, 7)
    rates.now += 1
    assert calls_until_refused(lambda: rates.rates.check_call("token", "ipv4:10.0.0.2:1")) == 2
    rates.rates.check_call("another", "ipv4:10.0.0.1:1")


def test_without_a_credential_all_calls_of_a_host_count_together() -> None:
    rates = Rates(Limits(credential_requests_per_second=2, credential_requests_burst=4))
    ports = iter(range(1, 100))
    assert calls_until_refused(lambda: rates.rates.check_call("", f"ipv4:10.0.0.1:{next(ports)}")) in (4, 5)
    rates.rates.check_call("", "ipv4:10.0.0.2:1")
    rates.rates.check_call("", "ipv6:%5B::1%5D:1")
    rates.rates.check_call("", "unix:")


# --- guesses ---


@pytest.fixture
def gate(store: SqlStore) -> Gate:
    """A gate that tells two times a minute that a project is taken; ``taken`` and ``taken-2`` are."""
    gate = Gate(store, Limits(hub_project_mismatches_per_minute=2))
    gate.push(batch(event(1), project_id="taken"), hub_project="other")
    gate.push(batch(event(1), project_id="taken-2"), hub_project="other")
    gate.push(batch(event(1), project_id="own"))
    return gate


def guess(gate: Gate, project_id: str) -> list[ConflictReason]:
    decision = gate.push(batch(event(1), project_id=project_id)).decision
    return [conflict.reason for conflict in decision.conflicts]


def guess_until_refused(gate: Gate) -> int:
    count = 0
    while True:
        try:
            assert guess(gate, "taken") == [ConflictReason.PROJECT_MISMATCH]
        except RateLimited:
            return count
        count += 1


def test_that_a_project_is_taken_is_told_only_so_often(gate: Gate) -> None:
    assert guess_until_refused(gate) in (2, 3)
    with pytest.raises(RateLimited) as caught:
        guess(gate, "taken")
    assert caught.value.metadata() == {"limit": "hub_project_mismatches_per_minute", "limitValue": "2"}
    gate.elapsed_nanos += 60 * NANOS_PER_SECOND
    assert guess_until_refused(gate) == 2


def test_past_that_a_project_that_nobody_has_is_refused_alike_and_not_bound(gate: Gate) -> None:
    guess_until_refused(gate)
    answers = []
    for project_id in ("taken-2", "nobodys"):
        with pytest.raises(RateLimited) as caught:
            guess(gate, project_id)
        answers.append((str(caught.value), caught.value.retry_seconds()))
    assert answers[0] == answers[1]
    owner = gate.run(lambda transaction, _now: [transaction.project_owner(ProjectId("nobodys"))])
    assert owner == [None]


def test_past_that_own_projects_go_on_and_other_hub_projects_too(gate: Gate) -> None:
    guess_until_refused(gate)
    assert len(gate.push(batch(event(2), project_id="own")).decision.accepted) == 1
    assert len(gate.push(batch(event(1), run_id="new", project_id="own")).decision.accepted) == 1
    stranger = gate.push(batch(event(1), project_id="own"), hub_project="third").decision
    assert [conflict.reason for conflict in stranger.conflicts] == [ConflictReason.PROJECT_MISMATCH]


def reconcile_request(*project_ids: str) -> ReconcileRequest:
    runs = [
        RuntimeRun(
            ProjectId(project_id), RunId(f"r{number}"), 0, chain_hash_at_start(project_id, f"r{number}"), 0
        )
        for project_id in project_ids
        for number in range(3)
    ]
    return ReconcileRequest(RuntimeId("runtime"), InstanceId("instance"), "", runs)


async def stepped(gate: Gate, project_ids: tuple[str, ...]) -> list[str]:
    """What a reconcile of runs of these projects says about each, the writer stepped for it."""
    call = asyncio.ensure_future(gate.reconcile.reconcile(caller_of("h"), reconcile_request(*project_ids)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gate.writer.step()
    _, runs = await call
    return [run.state for run in runs]


async def test_a_reconcile_counts_each_project_once_however_many_its_runs(gate: Gate) -> None:
    assert set(await stepped(gate, ("taken", "own"))) == {"PROJECT_MISMATCH", "IN_STEP"}
    assert set(await stepped(gate, ("own", "nobodys"))) == {"IN_STEP"}
    await stepped(gate, ("taken", "taken-2"))
    with pytest.raises(RateLimited):
        await stepped(gate, ("own", "nobodys"))
    assert set(await stepped(gate, ("own",))) == {"IN_STEP"}
    instance = gate.run(lambda transaction, _now: [transaction.current_instance(H, RuntimeId("runtime"))])
    assert instance == ["instance"]


async def test_an_operator_who_binds_guesses_too(gate: Gate) -> None:
    guesses = ProjectGuesses(limits=gate.limits, monotonic_seconds=gate.elapsed_seconds)
    projects = Projects(gate.async_writer, guesses)

    async def bind(project_id: str) -> None:
        call = asyncio.ensure_future(projects.bind(caller_of("h"), ProjectId(project_id)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gate.writer.step()
        await call

    refused: list[type[Exception]] = []
    for project_id in ("taken", "taken", "taken", "taken", "nobodys"):
        with pytest.raises((PermissionDenied, RateLimited)) as caught:
            await bind(project_id)
        refused.append(caught.type)
    assert (refused[0], refused[-2:]) == (PermissionDenied, [RateLimited, RateLimited])
    await bind("own")
