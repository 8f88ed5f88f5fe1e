"""Each cause of refusal has its own reason, over every RPC of LeaseService: one table.

Each cell is tried against a real hub, in a tenant of its own, with the clock standing still; a refusal has
the code and the facts of its reason, and after it everything that can be read of the resource is the same.
"""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.core.errors import Reason
from hub.core.limits import Limits
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from synchub.channel import Refusal, refusal_from_error
from synchub.contract import SEQUENCE_MAX
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.hub_in_thread import HubInThread
from tests.contract.hub_time import HandClock, hub_in_hand
from tests.contract.lease_calls import LeaseCalls
from tests.contract.lease_situations import SITUATIONS, InBand, World, check, held, renew_on_stream
from tests.contract.leasing import CALL_SECONDS_MAX, nonce

GRANTED: Final = "-"

CODES: Final = {
    "LEASE_HELD": grpc.StatusCode.FAILED_PRECONDITION,
    "LEASE_MISSING": grpc.StatusCode.FAILED_PRECONDITION,
    "LEASE_SUPERSEDED": grpc.StatusCode.FAILED_PRECONDITION,
    "LEASE_EXPIRED": grpc.StatusCode.FAILED_PRECONDITION,
    "LEASE_FENCED": grpc.StatusCode.FAILED_PRECONDITION,
    "RESOURCE_UNDER_MAINTENANCE": grpc.StatusCode.FAILED_PRECONDITION,
    "IDEMPOTENCY_CONFLICT": grpc.StatusCode.ALREADY_EXISTS,
    "LIMIT_REACHED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "NOT_FOUND": grpc.StatusCode.NOT_FOUND,
}
FACTS: Final = {
    "LEASE_HELD": {"resource", "holderDisplayName", "expireTime"},
    "LEASE_MISSING": {"resource"},
    "LEASE_SUPERSEDED": {"resource"},
    "LEASE_EXPIRED": {"resource", "fencingToken", "expireTime"},
    "LEASE_FENCED": {"resource", "fencingToken"},
    "RESOURCE_UNDER_MAINTENANCE": {"resource", "holderDisplayName", "expireTime"},
    "IDEMPOTENCY_CONFLICT": {"field", "id"},
    "LIMIT_REACHED": {"limit", "limitValue"},
    "INVALID_REQUEST": {"field"},
    "NOT_FOUND": {"resource"},
}
"""The keys of the metadata; where a token was shown or is meant, fencingToken besides."""
WITH_RETRY: Final = {"LEASE_HELD", "RESOURCE_UNDER_MAINTENANCE"}

# --- the tables -----------------------------------------------------------------------------------
# Columns are the calls, with the credential that the situation gives; rows the situations.

SHORT: Final = {
    "held": "LEASE_HELD",
    "missing": "LEASE_MISSING",
    "superseded": "LEASE_SUPERSEDED",
    "expired": "LEASE_EXPIRED",
    "fenced": "LEASE_FENCED",
    "maintained": "RESOURCE_UNDER_MAINTENANCE",
    "not_found": "NOT_FOUND",
    GRANTED: GRANTED,
}
CREDENTIAL_TABLE: Final = """
situation             RenewLease  RenewLeases ReleaseLease TransferLease RenewMaintenance FinishMaintenance CheckLease
never                 missing     missing     missing      missing       missing          missing           missing
held                  -           -           -            -             missing          missing           -
wrong_nonce           superseded  superseded  superseded   superseded    superseded       superseded        superseded
released              missing     missing     missing      missing       missing          missing           missing
restarted             superseded  superseded  superseded   superseded    superseded       superseded        superseded
expired               expired     expired     -            expired       missing          missing           expired
taken_over            superseded  superseded  superseded   superseded    superseded       superseded        superseded
handed_on             superseded  superseded  superseded   superseded    superseded       superseded        superseded
fenced                fenced      fenced      fenced       fenced        fenced           fenced            fenced
fenced_and_followed   fenced      fenced      fenced       fenced        fenced           fenced            fenced
maintained            maintained  maintained  maintained   maintained    -                -                 -
maintenance_expired   missing     missing     missing      missing       expired          -                 expired
maintenance_finished  missing     missing     missing      missing       missing          missing           missing
maintenance_followed  superseded  superseded  superseded   superseded    superseded       superseded        superseded
"""  # noqa: E501
CLAIM_TABLE: Final = """
situation             AcquireLease TakeoverLease AbortLease  BeginMaintenance GetLease
never                 -            missing       missing     -                not_found
held                  held         held          -           -                -
released              -            missing       missing     -                -
expired               -            -             expired     -                -
taken_over            held         held          -           -                -
handed_on             held         held          -           -                -
fenced                maintained   maintained    maintained  maintained       -
fenced_and_followed   held         held          -           -                -
maintained            maintained   maintained    maintained  maintained       not_found
maintenance_expired   -            missing       missing     -                not_found
maintenance_finished  -            missing       missing     -                not_found
maintenance_followed  held         held          -           -                -
"""


CALLS: Final[dict[str, Callable[[World], object]]] = {
    "RenewLease": lambda world: world.calls.renew(world.shown),
    "RenewLeases": renew_on_stream,
    "ReleaseLease": lambda world: world.calls.release(world.shown),
    "TransferLease": lambda world: world.calls.transfer(world.shown, to="z"),
    "RenewMaintenance": lambda world: world.calls.renew_maintenance(world.shown),
    "FinishMaintenance": lambda world: world.calls.finish(world.shown),
    "CheckLease": check,
    "AcquireLease": lambda world: world.calls.acquire("x", "x1"),
    "TakeoverLease": lambda world: world.calls.takeover("x", "x1"),
    "AbortLease": lambda world: world.calls.abort(),
    "BeginMaintenance": lambda world: world.calls.begin("x", "x1"),
    "GetLease": lambda world: world.calls.stub.GetLease(
        messages.GetLeaseRequest(hub_project=world.calls.hub_project, resource="r")
    ),
}

Cell = tuple[str, str, str]
"""(situation, call, reason)"""


def cells_of(table: str) -> list[Cell]:
    heading, *rows = [line.split() for line in table.strip().splitlines()]
    return [
        (row[0], call, SHORT[word]) for row in rows for call, word in zip(heading[1:], row[1:], strict=True)
    ]


CREDENTIAL_CALLS: Final = {call for _, call, _ in cells_of(CREDENTIAL_TABLE)}
CELLS: Final = [*cells_of(CREDENTIAL_TABLE), *cells_of(CLAIM_TABLE)]


# --- what has no column: tokens, nonces, request ids, ends of counters, bounds --------------------


def nonce_again(call: str) -> Callable[[World], object]:
    """A call under the nonce of the expired lease."""
    return {
        "AcquireLease": lambda world: world.calls.acquire("a", "a1"),
        "TakeoverLease": lambda world: world.calls.takeover("a", "a1"),
        "BeginMaintenance": lambda world: world.calls.begin("a", "a1"),
    }[call]


def abort_of_shown(world: World) -> object:
    return world.calls.abort(world.shown.fencing_token)


OTHER_ROWS: Final[list[tuple[str, str, Callable[[World], object], str]]] = [
    *[
        ("expired", call, nonce_again(call), "LEASE_SUPERSEDED")
        for call in ("AcquireLease", "TakeoverLease", "BeginMaintenance")
    ],
    ("never", "AbortLease", abort_of_shown, "LEASE_MISSING"),
    ("released", "AbortLease", abort_of_shown, "LEASE_MISSING"),
    ("restarted", "AbortLease", abort_of_shown, "LEASE_SUPERSEDED"),
    ("expired", "AbortLease", abort_of_shown, "LEASE_EXPIRED"),
    ("taken_over", "AbortLease", abort_of_shown, "LEASE_SUPERSEDED"),
    ("fenced", "AbortLease", abort_of_shown, "LEASE_FENCED"),
    ("fenced_and_followed", "AbortLease", abort_of_shown, "LEASE_FENCED"),
    ("maintained", "AbortLease", abort_of_shown, "RESOURCE_UNDER_MAINTENANCE"),
    ("maintenance_expired", "AbortLease", abort_of_shown, "LEASE_MISSING"),
]

REPEATABLE: Final[dict[str, tuple[str, Callable[[World, str], object]]]] = {
    "AcquireLease": ("never", lambda world, name: world.calls.acquire("x", f"x{name}", request_id="q")),
    "TakeoverLease": ("expired", lambda world, name: world.calls.takeover("x", f"x{name}", request_id="q")),
    "BeginMaintenance": ("never", lambda world, name: world.calls.begin("x", f"x{name}", request_id="q")),
    "ReleaseLease": ("held", lambda world, name: world.calls.release(changed(world, name), request_id="q")),
    "TransferLease": ("held", lambda world, name: world.calls.transfer(world.shown, to=name, request_id="q")),
    "AbortLease": ("held", lambda world, name: world.calls.abort(int(name), request_id="q")),
    "FinishMaintenance": (
        "maintained",
        lambda world, name: world.calls.finish(changed(world, name), request_id="q"),
    ),
}
"""Each call under one request id, with parameters that a name makes different: 1 is right, 2 is another."""


def changed(world: World, name: str) -> messages.LeaseCredential:
    credential = messages.LeaseCredential()
    credential.CopyFrom(world.shown)
    if name != "1":
        credential.nonce = nonce(name)
    return credential


USED_UP: Final[dict[str, tuple[str, Callable[[World], object]]]] = {
    "AcquireLease": ("held", lambda world: world.calls.acquire("a", "a2")),
    "TakeoverLease": ("expired", lambda world: world.calls.takeover()),
    "TransferLease": ("held", lambda world: world.calls.transfer(world.shown)),
    "BeginMaintenance": ("held", lambda world: world.calls.begin()),
}
"""What needs another token."""

METHODS: Final = messages.DESCRIPTOR.services_by_name["LeaseService"].methods


def without_tenant(stub: LeaseServiceStub, method: str) -> object:
    """Call any method with nothing in its request."""
    by_name = {each.name: each for each in METHODS}
    request = getattr(messages, by_name[method].input_type.name)()
    call = getattr(stub, method)
    if method == "RenewLeases":
        return list(call(iter([request])))
    return list(call(request)) if method == "WatchLeases" else call(request)


# --- the tests ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """One may wait."""
    return Limits(lease_waiters_max=1)


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module")
def grpc_server(
    tmp_path_factory: pytest.TempPathFactory, clock: HandClock, hub_limits: Limits
) -> Iterator[HubInThread]:
    with hub_in_hand(tmp_path_factory.mktemp("hub"), clock, limits=hub_limits) as hub:
        yield hub


tenants: Final = count()


@pytest.fixture
def world(lease_stub: LeaseServiceStub, clock: HandClock) -> World:
    return World(LeaseCalls(lease_stub, f"tenant-{next(tenants)}"), clock)


@pytest.fixture(scope="module")
def used_up_stub(tmp_path_factory: pytest.TempPathFactory, clock: HandClock) -> Iterator[LeaseServiceStub]:
    """Of a hub in which each resource has one token left."""
    folder: Path = tmp_path_factory.mktemp("used-up")
    with opened_engine(folder / "hub.db", limits=Limits()) as engine:
        store = SqlStore(engine, limits=Limits(), wall_nanos=0)
        store.writing.begin().leases.raise_floors(SEQUENCE_MAX - 1)
        store.writing.commit(0)
        store.close()
    with hub_in_hand(folder, clock) as hub, grpc.insecure_channel(hub.address) as channel:
        yield LeaseServiceStub(channel)


def everything(world: World) -> tuple[object, ...]:
    listed = messages.ListLeasesRequest(hub_project=world.calls.hub_project, include_ended=True)
    return world.calls.state(), world.calls.stub.ListLeases(listed)


def refusal_without_change(world: World, call: Callable[[World], object]) -> Refusal:
    """What a call is refused with; nothing of the tenant has changed."""
    before = everything(world)
    refusal = None
    try:
        answer = call(world)
    except grpc.RpcError as error:
        refusal = refusal_from_error(error)
    except InBand as answered:
        refusal = answered.refusal
    else:
        raise AssertionError(f"the call was answered: {answer}")
    assert everything(world) == before
    return refusal


def assert_whole(refusal: Refusal, reason: str, *, shows_token: bool | None) -> None:
    """Reason, code and facts belong together; ``shows_token`` None where it depends on the last tenure."""
    assert refusal.reason == reason
    if refusal.code is grpc.StatusCode.OK:
        return
    assert refusal.code is CODES[reason]
    with_token = FACTS[reason] | {"fencingToken"}
    wants_token = shows_token and FACTS[reason] == {"resource"} and reason != "NOT_FOUND"
    allowed = [with_token] if wants_token else [FACTS[reason]]
    if shows_token is None:
        allowed.append(with_token)
    assert set(refusal.metadata) in allowed
    assert (refusal.retry_delay_seconds is not None) == (reason in WITH_RETRY)
    assert refusal.message
    if reason in WITH_RETRY:
        assert refusal.retry_delay_seconds
    assert bool(refusal.violations) == (reason == "INVALID_REQUEST")


@pytest.mark.parametrize(("situation", "call", "reason"), CELLS, ids=["-".join(cell[:2]) for cell in CELLS])
def test_each_call_in_each_situation(world: World, situation: str, call: str, reason: str) -> None:
    SITUATIONS[situation](world)
    if reason == GRANTED:
        CALLS[call](world)
        return
    refusal = refusal_without_change(world, CALLS[call])
    shows_token = None if call == "AbortLease" else call in CREDENTIAL_CALLS
    assert_whole(refusal, reason, shows_token=shows_token)


@pytest.mark.parametrize(("situation", "_call", "make", "reason"), OTHER_ROWS)
def test_each_nonce_and_token_of_before(
    world: World, situation: str, _call: str, make: Callable[[World], object], reason: str
) -> None:
    SITUATIONS[situation](world)
    assert_whole(refusal_without_change(world, make), reason, shows_token=make is abort_of_shown)


@pytest.mark.parametrize("call", REPEATABLE)
def test_a_request_id_with_other_parameters_is_a_conflict(world: World, call: str) -> None:
    situation, make = REPEATABLE[call]
    SITUATIONS[situation](world)
    make(world, "1")
    refusal = refusal_without_change(world, lambda world: make(world, "2"))
    assert_whole(refusal, "IDEMPOTENCY_CONFLICT", shows_token=False)
    assert refusal.metadata == {"field": "request_id", "id": "q"}
    # And so it is for every other call under that id.
    for other, (_, make_other) in REPEATABLE.items():
        if other != call:
            conflict = refusal_without_change(world, lambda world, make=make_other: make(world, "1"))  # type: ignore[misc]
            assert_whole(conflict, "IDEMPOTENCY_CONFLICT", shows_token=False)


@pytest.mark.parametrize("call", USED_UP)
def test_the_last_token_is_the_last(used_up_stub: LeaseServiceStub, clock: HandClock, call: str) -> None:
    world = World(LeaseCalls(used_up_stub, f"tenant-{next(tenants)}"), clock)
    situation, make = USED_UP[call]
    SITUATIONS[situation](world)
    assert world.shown.fencing_token == SEQUENCE_MAX
    refusal = refusal_without_change(world, make)
    assert_whole(refusal, "LIMIT_REACHED", shows_token=False)
    assert refusal.metadata == {"limit": "fencing_token", "limitValue": str(SEQUENCE_MAX)}


def test_one_more_waiter_than_may_wait_is_refused(world: World) -> None:
    held(world)
    waiting = world.calls.waiting()
    more = LeaseCalls(world.calls.stub, world.calls.hub_project)
    refusal = refusal_without_change(
        world, lambda _world: more.stub.AcquireLease(wait_request(more), timeout=CALL_SECONDS_MAX)
    )
    assert_whole(refusal, "LIMIT_REACHED", shows_token=False)
    assert refusal.metadata == {"limit": "lease_waiters_max", "limitValue": "1"}
    waiting.cancel()


def wait_request(calls: LeaseCalls) -> messages.AcquireLeaseRequest:
    request = messages.AcquireLeaseRequest(
        hub_project=calls.hub_project, resource="r", runtime_id="runtime", holder_id="c"
    )
    request.wait_timeout.FromSeconds(60)
    return request


@pytest.mark.parametrize("method", [method.name for method in METHODS])
def test_an_empty_request_is_invalid(world: World, method: str) -> None:
    held(world)
    refusal = refusal_without_change(world, lambda world: without_tenant(world.calls.stub, method))
    assert_whole(refusal, "INVALID_REQUEST", shows_token=False)
    assert "hub_project" in {violation.field for violation in refusal.violations}


# --- the table is whole ---------------------------------------------------------------------------


def test_every_call_of_the_service_is_in_the_table() -> None:
    tried = {call for _, call, _ in CELLS}
    reading = {"ListLeases", "WatchLeases", "GetResourceState"}
    assert tried | reading == {method.name for method in METHODS}
    assert tried == set(CALLS)
    assert {situation for situation, _, _ in CELLS} == set(SITUATIONS)


def test_every_reason_of_a_lease_is_in_the_table() -> None:
    tried = {reason for _, _, reason in CELLS if reason != GRANTED}
    assert tried == {
        "NOT_FOUND",
        "RESOURCE_UNDER_MAINTENANCE",
        *(reason.value for reason in Reason if reason.value.startswith("LEASE_")),
    }
    assert set(CODES) == set(FACTS) == tried | {"IDEMPOTENCY_CONFLICT", "LIMIT_REACHED", "INVALID_REQUEST"}


def test_every_call_that_may_be_repeated_is_tried_with_its_request_id() -> None:
    with_request_id = {method.name for method in METHODS if "request_id" in method.input_type.fields_by_name}
    assert set(REPEATABLE) == with_request_id


def test_every_cause_of_a_check_is_in_the_table() -> None:
    causes = {reason for _, call, reason in CELLS if call == "CheckLease" and reason != GRANTED}
    assert causes == {name.removeprefix("STALE_CAUSE_") for name in messages.StaleCause.keys()[1:]}
