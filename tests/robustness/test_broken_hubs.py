"""A hub with one decision replaced is caught by the checker, and the same calls of a sound one are not.

So a clean history says something: the clients do reach what would go wrong, and the checker sees it.
"""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import apsw
import pytest

from hub.assembly import parts
from hub.config import Endpoint, HubSettings
from hub.core.lease import decide_acquire, decide_renew, decide_takeover
from hub.core.tenure import Claim, Credential, Granted, Resource, TenureEnd, TenureState, unused_resource
from hub.service import lease_use_cases, leases
from hub.service.lease_queue import LeaseQueues, QueueKey, Waiter
from tests.contract.hub_in_thread import HubInThread
from tests.robustness.lease_calls import Credential as Proof
from tests.robustness.lease_calls import LeaseCalls
from tests.robustness.lease_checker import Verdict, check_history
from tests.robustness.lease_history import Arguments, Operation, Recorder, client_nanos
from tests.robustness.lease_load import SECOND, Handed, LeaseClient, Surroundings

CLIENTS: Final = 6
BUSY_MILLISECONDS: Final = 10_000
"""The hub writes by itself now and then, and holds the file for that long at most."""
LOAD_SECONDS: Final = 0.3
"""Besides the time that the script takes."""
STEP_AFTER_READS: Final = 200
STEP_BACK_NANOS: Final = 5 * SECOND
RESOURCES: Final = ("a", "b", "c", "d")


def release_resets_the_token(
    before: Resource, claim: Claim, *, now_nanos: int, may_open: bool, past_nonces_max: int
) -> Granted:
    """Forget a resource once it was released, when it is next wanted; no row has a token of 0."""
    current = before.current
    if current is not None and current.state(now_nanos) is TenureState.RELEASED:
        before = unused_resource(before.name, before.floor)
    return decide_acquire(
        before, claim, now_nanos=now_nanos, may_open=may_open, past_nonces_max=past_nonces_max
    )


def renew_compares_no_nonce(
    before: Resource, credential: Credential, *, now_nanos: int, ttl_nanos: int | None
) -> Granted:
    current = before.current
    if current is not None and current.nonce_hash is not None:
        credential = replace(credential, nonce_hash=current.nonce_hash)
    return decide_renew(before, credential, now_nanos=now_nanos, ttl_nanos=ttl_nanos)


def renew_revives_what_expired(
    before: Resource, credential: Credential, *, now_nanos: int, ttl_nanos: int | None
) -> Granted:
    lease = before.lease
    if lease is not None and lease.state(now_nanos) is TenureState.EXPIRED:
        before = replace(before, lease=replace(lease, end=None, expire_nanos=now_nanos + 1))
    return decide_renew(before, credential, now_nanos=now_nanos, ttl_nanos=ttl_nanos)


def takeover_passes_a_maintenance(
    before: Resource, claim: Claim, *, now_nanos: int, may_open: bool, past_nonces_max: int
) -> Granted:
    lease = before.lease
    if lease is not None and lease.end is not None and lease.end.state is TenureState.FENCED:
        lease = replace(lease, end=TenureEnd(TenureState.EXPIRED, lease.end.end_nanos))
        before = replace(before, maintenance=None, lease=lease)
    return decide_takeover(
        before, claim, now_nanos=now_nanos, may_open=may_open, past_nonces_max=past_nonces_max
    )


def takeover_comes_early(
    before: Resource, claim: Claim, *, now_nanos: int, may_open: bool, past_nonces_max: int
) -> Granted:
    lease = before.lease
    if lease is not None and lease.end is None:
        before = replace(before, lease=replace(lease, expire_nanos=lease.expire_nanos - SECOND // 2))
    return decide_takeover(
        before, claim, now_nanos=now_nanos, may_open=may_open, past_nonces_max=past_nonces_max
    )


class LastComeFirstServed(LeaseQueues):
    """A queue that is a stack."""

    def join(self, key: QueueKey, claim: Claim, *, begin_nanos: int) -> Waiter:
        waiter = super().join(key, claim, begin_nanos=begin_nanos)
        queue = self._queues[key]
        queue.remove(waiter)
        queue.insert(0, waiter)
        return waiter


class SteppingClock:
    """A clock that steps back by some seconds once, as a wall clock does that is set."""

    def __init__(self) -> None:
        self._read_count = 0

    def __call__(self) -> int:
        self._read_count += 1
        return client_nanos() - (STEP_BACK_NANOS if self._read_count > STEP_AFTER_READS else 0)


@pytest.fixture
def rng(pytestconfig: pytest.Config) -> random.Random:
    """The same chance for every hub here, broken or sound."""
    return random.Random(int(pytestconfig.getoption("--seed")))


ORDER: Final = "no order explains it"


@pytest.mark.parametrize(
    ("decision", "replacement", "kinds"),
    [
        ("decide_acquire", release_resets_the_token, {ORDER, "token or epoch fell"}),
        ("decide_renew", renew_compares_no_nonce, {ORDER}),
        ("decide_renew", renew_revives_what_expired, {ORDER}),
        ("decide_takeover", takeover_passes_a_maintenance, {ORDER, "two tenures at once"}),
        ("decide_takeover", takeover_comes_early, {ORDER, "two tenures at once"}),
    ],
)
def test_a_hub_that_decides_wrongly_is_caught(
    decision: str,
    replacement: object,
    kinds: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
) -> None:
    monkeypatch.setattr(leases, decision, replacement)
    is_guarded = replacement is not release_resets_the_token
    assert kinds <= verdict_on_a_hub(tmp_path, rng=rng, is_guarded=is_guarded).kinds


def test_a_hub_whose_queue_is_a_stack_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(lease_use_cases, "LeaseQueues", LastComeFirstServed)
    assert "queue" in verdict_on_a_hub(tmp_path, rng=rng).kinds


def test_a_hub_whose_clock_can_be_set_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    monkeypatch.setattr(parts, "boot_nanos", SteppingClock())
    assert {ORDER, "hub time"} <= verdict_on_a_hub(tmp_path, rng=rng).kinds


def test_a_sound_hub_passes(tmp_path: Path, rng: random.Random) -> None:
    verdict = verdict_on_a_hub(tmp_path, rng=rng)
    assert verdict.faults == []
    assert min(verdict.counts[name] for name in ("release ok", "refused for its nonce", "takeover ok")) > 0


def verdict_on_a_hub(folder: Path, *, rng: random.Random, is_guarded: bool = True) -> Verdict:
    """Run a hub in this process, go through what is scripted while clients call at random, and check.

    Not ``is_guarded``: without the trigger by which the store refuses a token that falls.
    """
    settings = HubSettings(database=folder / "hub.db", listen=Endpoint("127.0.0.1", 0), http=None)
    recorder = Recorder()
    with HubInThread(settings) as hub:
        if not is_guarded:
            with closing(apsw.Connection(str(settings.database))) as connection:
                connection.set_busy_timeout(BUSY_MILLISECONDS)
                connection.execute("DROP TRIGGER token_only_rises")
        ending = threading.Event()
        names = [f"client-{number}" for number in range(CLIENTS)]
        shared = Surroundings(hub.address, recorder, RESOURCES, names, Handed(), ending)
        clients = [LeaseClient(name, shared, rng=random.Random(rng.random())) for name in names]
        for client in clients:
            client.start()
        calls = LeaseCalls("script", hub.address, recorder=recorder)
        go_through_the_script(calls)
        time.sleep(LOAD_SECONDS)
        ending.set()
        for client in clients:
            client.join(30)
        calls.close()
    assert all(client.has_ended_well for client in clients)
    return check_history(recorder.history())


def go_through_the_script(calls: LeaseCalls) -> None:
    """Do, on resources that nobody else wants, what shows each of the breakages."""
    held = proof_of(calls.acquire("released", claim("first")))
    calls.release(held)
    calls.acquire("released", claim("second"))

    held = proof_of(calls.acquire("guessed", claim("first")))
    calls.renew(replace(held, nonce="guessed-nonce-of-the-first"))

    wait_in_line(calls)

    expiring = [proof_of(calls.acquire(name, claim("first"))) for name in ("maintained", "revived", "early")]
    time.sleep(0.7)
    calls.takeover("early", claim("second"))
    time.sleep(0.4)
    calls.begin_maintenance("maintained", claim("maintainer"))
    calls.takeover("maintained", claim("second"))
    calls.renew(expiring[1])
    calls.takeover("early", claim("third"))


def wait_in_line(calls: LeaseCalls) -> None:
    """Let two wait for a resource, one after the other, and free it as often as they need."""
    held = proof_of(calls.acquire("queued", claim("first")))
    with ThreadPoolExecutor() as threads:
        waits: list[Future[Proof]] = []
        for name in ("second", "third"):
            asked = replace(claim(name), wait_nanos=5 * SECOND)
            waits.append(threads.submit(lambda asked: proof_of(calls.acquire("queued", asked)), asked))
            time.sleep(0.4)
        calls.release(held)
        for granted in as_completed(waits):
            calls.release(granted.result())


def claim(holder: str) -> Arguments:
    return Arguments("script", holder, f"nonce-of-the-{holder}-one", ttl_nanos=SECOND)


def proof_of(granted: Operation) -> Proof:
    asked, token = granted.arguments, granted.answer.token
    assert token is not None, granted
    return Proof(granted.resource, asked.runtime_id, asked.holder_id, token, asked.nonce)
