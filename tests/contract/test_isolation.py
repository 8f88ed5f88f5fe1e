"""What one hub project is told is the same whether another one is there or not, in every call.

Two hubs are compared: on one the other tenant did all that can be done, under the same names, before and
between the calls; on the other there never was one. The one fact that a stranger learns is that a project
is taken.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import pytest
from google.protobuf.message import Message

from hub.core.limits import Limits
from hub.core.values import Role
from synchub.v1.alert_pb2 import ALERT_REASON_PROJECT_MISMATCH
from synchub.v1.hub_service_pb2 import GetHubInfoResponse
from synchub.v1.lease_service_pb2 import (
    AcquireLeaseRequest,
    GetResourceStateRequest,
    GetResourceStateResponse,
)
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import (
    BindProjectRequest,
    PushEventsRequest,
    ReconcileRun,
    ReconcileRunsRequest,
)
from tests.contract.conftest import settings_in
from tests.contract.every_method import METHODS, Method, method_named
from tests.contract.hub_in_thread import HubInThread
from tests.contract.leasing import nonce, seconds
from tests.contract.secured import Kind, keep, new_bearer
from tests.contract.tenancy import CALL_SECONDS_MAX, Metadata, Tenant, Told, Watcher, comparable, copied
from tests.contract.tenancy_reads import READS, WATCHES
from tests.contract.tenancy_steps import CHANGES, LAST

MINE: Final = "b"
OTHER: Final = "a"
TIMEOUT_SECONDS: Final = 100
LIMITS: Final = Limits(outbox_tries_max=1, lease_ttl_seconds_min=0.001, half_close_wait_seconds=0.05)

OF_THE_WHOLE_HUB: Final = {
    "HubService/BackupHub": "an administrator's, who looks after all hub projects",
}
"""Methods that no tenant has, and why."""
BIND_PROJECTS: Final = ("SyncService/PushEvents", "SyncService/ReconcileRuns", "SyncService/BindProject")
"""Methods that learn that a project is taken, where it is; they have tests of their own."""


LAST_NAME: Final = "last"
"""What every watch hears of in the end."""


@dataclass
class Heard:
    """All that one tenant was told on one hub, comparable."""

    changes: list[Told]
    reads: list[Told]
    watches: Mapping[str, Mapping[str, str]]
    replayed: list[Told]
    reads_after: list[Told]


@pytest.mark.timeout(TIMEOUT_SECONDS)
@pytest.mark.parametrize("is_secured", [False, True], ids=["anybody", "with credentials"])
def test_a_tenant_is_told_the_same_whether_there_is_another_one(tmp_path: Path, is_secured: bool) -> None:
    asked: list[Asked] = []
    with _hub(tmp_path / "full", (MINE, OTHER), is_secured=is_secured) as tenants:
        beside = _heard(tenants[MINE], other=tenants[OTHER], asked=asked)
    with _hub(tmp_path / "alone", (MINE,), is_secured=is_secured) as tenants:
        alone = _heard(tenants[MINE], other=None, asked=asked)
    assert {told.method for told in beside.changes + beside.reads if not told.refusal} >= _answered()
    _assert_same(beside.changes, alone.changes)
    _assert_same(beside.reads, alone.reads)
    assert beside.watches == alone.watches
    _assert_same(beside.replayed, alone.replayed)
    _assert_same(beside.reads_after, alone.reads_after)


def test_every_method_is_tried() -> None:
    tried = {step.method for step in (*CHANGES, *READS)} | set(WATCHES) | set(OF_THE_WHOLE_HUB)
    assert tried == {method.name for method in METHODS}


@pytest.mark.parametrize("is_secured", [False, True], ids=["anybody", "with credentials"])
def test_that_a_project_is_taken_says_nothing_else(tmp_path: Path, is_secured: bool) -> None:
    reads = [step for step in READS if step.method != "SyncService/ListAlerts"]
    with _hub(tmp_path, (MINE, OTHER), is_secured=is_secured, prefixes=()) as tenants:
        mine, other = tenants[MINE], tenants[OTHER]
        for step in CHANGES:
            other.do(step)
        bound = BindProjectRequest(hub_project=OTHER, project_id=f"{OTHER}-bound")
        assert not other.send(method_named("SyncService/BindProject"), [bound]).refusal
        before = [other.do(step) for step in reads]
        # The same and another content, in a run that is there, one that is complete, one that is not there;
        # as the runtime that it belongs to and as another one; and in a project that is bound and empty.
        answers = [
            _answers_to_a_stranger(mine, project_id, run_id=run_id, runtime_id=runtime_id, text=text)
            for project_id in (other.project, bound.project_id)
            for run_id in ("r1", "r2", "x1")
            for runtime_id in ("rt", "xx")
            for text in ("a", "b")
        ]
        assert answers == [answers[0]] * len(answers)
        alerts = other.alerts()
        assert [other.do(step) for step in reads] == before
    told = [str(alert) for alert in alerts if alert.reason == ALERT_REASON_PROJECT_MISMATCH]
    assert told
    for word in ("xx", "x1", "127.0.0.1", "token"):
        assert not [alert for alert in told if word in alert], "the owner hears nothing of who tried"


Asked = tuple[Method, Sequence[Message]]


def _heard(mine: Tenant, *, other: Tenant | None, asked: list[Asked]) -> Heard:
    """Do everything as one tenant; the other one, where there is one, does it before each time, and again.

    ``asked`` is what the other one asked, for the hub where there is none to do so.
    """
    everybody = (mine,) if other is None else (other, mine)
    with ExitStack() as stack:
        watchers = {
            name: stack.enter_context(Watcher(mine, method_named(name), make(mine)))
            for name, make in WATCHES.items()
        }
        for tenant in everybody:
            stack.enter_context(_one_waits(tenant))
        told = [[tenant.do(step) for tenant in everybody][-1] for step in (*CHANGES, *READS)]
        changes, reads = told[: len(CHANGES)], told[len(CHANGES) :]
        changes += [[tenant.do(step) for tenant in everybody][-1] for step in LAST]
        watches = {name: _newest(watcher.until(_has_heard_all)) for name, watcher in watchers.items()}
        before: list[Told] = []
        if other is not None:
            for step in CHANGES:
                other.do(step)
            asked += other.asked
            before = [other.do(step) for step in READS]
        replayed = [told for each in asked for told in _replayed(mine, *each)]
        if other is not None:
            _assert_same([other.do(step) for step in READS], before)
        return Heard(changes, reads, watches, replayed, [mine.do(step) for step in READS])


def _replayed(mine: Tenant, method: Method, requests: Sequence[Message]) -> Iterator[Told]:
    """Ask what another tenant asked: with its ids and page tokens, but as oneself; and in its name too."""
    if method.name in BIND_PROJECTS:
        return
    in_my_name = [copied(request) for request in requests]
    for request in in_my_name:
        if "hub_project" in request.DESCRIPTOR.fields_by_name:
            request.hub_project = mine.name  # type: ignore[attr-defined]  # looked up above
        if getattr(request, "hub_generation", ""):
            request.hub_generation = _generation(mine)  # type: ignore[attr-defined]  # looked up above
    for metadata in mine.credentials.values() or [()]:
        yield mine.send_as(metadata, method, in_my_name)[0]
        if mine.credentials and "hub_project" in requests[0].DESCRIPTOR.fields_by_name:
            yield mine.send_as(metadata, method, requests)[0]


def _answers_to_a_stranger(
    mine: Tenant, project_id: str, *, run_id: str, runtime_id: str, text: str
) -> tuple[Told, ...]:
    """Push to, reconcile and bind another tenant's project; the names that one said oneself are left out."""
    requests: Mapping[str, Message] = {
        "SyncService/PushEvents": PushEventsRequest(
            hub_project=mine.name,
            project_id=project_id,
            run_id=run_id,
            runtime_id=runtime_id,
            events=[SyncEvent(sequence=1, event_type="line", text=text)],
        ),
        "SyncService/ReconcileRuns": ReconcileRunsRequest(
            hub_project=mine.name,
            runtime_id=runtime_id,
            runs=[ReconcileRun(project_id=project_id, run_id=run_id, sequence=1, chain_hash=bytes(32))],
        ),
        "SyncService/BindProject": BindProjectRequest(hub_project=mine.name, project_id=project_id),
    }
    return tuple(
        Told(
            name,
            tuple(each.replace(run_id, "RUN").replace(project_id, "PROJECT") for each in told.answers),
            told.refusal.replace(project_id, "PROJECT"),
        )
        for name in BIND_PROJECTS
        for told in [mine.send(method_named(name), [requests[name]])]
    )


@contextmanager
def _hub(
    folder: Path, names: Sequence[str], *, is_secured: bool, prefixes: Sequence[str] = ("{}-",)
) -> Iterator[Mapping[str, Tenant]]:
    """Run a hub with these tenants, with credentials of each role or without any.

    ``prefixes`` are those of the runtimes' projects.
    """
    folder.mkdir(exist_ok=True)
    settings = settings_in(folder, LIMITS)
    shown: dict[str, dict[str, Metadata]] = {name: {} for name in names}
    if is_secured:
        now_nanos = time.time_ns()
        for name in names:
            # What may see most comes first: see Tenant.shown.
            for role in (Role.OPERATOR, Role.READER, Role.RUNTIME):
                kind = Kind(role, prefixes if role is Role.RUNTIME else ())
                bearer = new_bearer(name, kind, display_name="token", now_nanos=now_nanos)
                keep(settings.database, bearer.token, wall_nanos=now_nanos)
                shown[name][role.value] = (("authorization", f"Bearer {bearer.bearer_token}"),)
    with ExitStack() as stack:
        hub = stack.enter_context(HubInThread(settings))
        yield {
            name: Tenant(name, stack.enter_context(grpc.insecure_channel(hub.address)), shown[name])
            for name in names
        }


@contextmanager
def _one_waits(tenant: Tenant) -> Iterator[None]:
    """Have somebody wait for a lease of the tenant until the end."""
    acquire, state = method_named("LeaseService/AcquireLease"), method_named("LeaseService/GetResourceState")
    hold, wait = (
        AcquireLeaseRequest(
            hub_project=tenant.name,
            resource="queued",
            runtime_id="rt",
            holder_id=holder_id,
            holder_display_name=f"who is {holder_id}",
            nonce=nonce(f"queued-{holder_id}"),
            ttl=seconds(600),
            wait_timeout=seconds(500) if holder_id == "h2" else None,
        )
        for holder_id in ("h1", "h2")
    )
    tenant.send(acquire, [hold])
    call = tenant.channel.unary_unary(acquire.path, AcquireLeaseRequest.SerializeToString, bytes)
    waiting = call.future(wait, metadata=tenant.shown(acquire))
    deadline = time.monotonic() + CALL_SECONDS_MAX
    request = GetResourceStateRequest(hub_project=tenant.name, resource="queued")
    while True:
        _, (answer,) = tenant.send_as(tenant.shown(state), state, [request])
        assert isinstance(answer, GetResourceStateResponse)
        if answer.waiter_count == 1:
            break
        assert time.monotonic() < deadline, "nobody waits"
    yield
    waiting.cancel()


def _generation(tenant: Tenant) -> str:
    info = tenant.answers["HubService/GetHubInfo"]
    assert isinstance(info, GetHubInfoResponse)
    return info.hub_generation


def _newest(heard: Sequence[Message]) -> Mapping[str, str]:
    """The newest state of each thing that a watch told of, or each event, in their order."""
    newest: dict[str, str] = {}
    for answer in heard:
        things = answer.ListFields()[0][1] if answer.ListFields() else ()
        for thing in things if isinstance(things, Sequence) and not isinstance(things, str) else ():
            text = comparable(thing)
            names = ("position", "alert_id", "runtime_id", "resource")
            key = next(f"{name} {getattr(thing, name)}" for name in names if hasattr(thing, name))
            newest[text if key.startswith("alert_id") else key] = text
    return newest


def _has_heard_all(heard: Sequence[Message]) -> bool:
    last = [text for text in _newest(heard).values() if f'"{LAST_NAME}"' in text]
    # Somebody who says goodbye at once may be told of as being there before that.
    return bool(last) and "ONLINE" not in last[-1]


def _answered() -> set[str]:
    """Methods that are answered well at least once, so that there was something to be told."""
    watches_ahead = {"SyncService/WatchEvents", "JournalService/WatchJournal"}
    return {step.method for step in (*CHANGES, *READS)} - watches_ahead


def _assert_same(told: Sequence[Told], expected: Sequence[Told]) -> None:
    """Compare one by one, so that what differs is shown."""
    assert len(told) == len(expected)
    for one, another in zip(told, expected, strict=True):
        assert one == another
