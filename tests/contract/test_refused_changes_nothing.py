"""A full hub project, and who may not touch it: each call is refused, and no row of the store changes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw
import grpc
import pytest
from google.protobuf.message import Message

from hub.core.limits import Limits
from hub.core.values import Role
from tests.contract.conftest import settings_in
from tests.contract.every_method import Method
from tests.contract.holding import until
from tests.contract.hub_in_thread import HubInThread
from tests.contract.secured import Kind, keep, make_tokens, new_bearer
from tests.contract.tenancy import Metadata, Tenant
from tests.contract.tenancy_reads import READS
from tests.contract.tenancy_steps import CHANGES, LAST

FULL: Final = "one"
LIMITS: Final = Limits(outbox_tries_max=1, lease_ttl_seconds_min=0.001, half_close_wait_seconds=0.01)
WRONG_SECRET: Final = "0" * 64
UNAUTHENTICATED: Final = {
    "nothing": "CREDENTIAL_MISSING",
    "a token of the wrong form": "CREDENTIAL_INVALID",
    "a token that is not there": "CREDENTIAL_INVALID",
    "a wrong secret": "CREDENTIAL_INVALID",
    "a token that is over": "CREDENTIAL_EXPIRED",
    "a token that was revoked": "CREDENTIAL_REVOKED",
    "another scheme": "CREDENTIAL_INVALID",
    "a token twice": "CREDENTIAL_INVALID",
}


Stored = dict[str, list[tuple[object, ...]]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A full hub project, what its owner asked, and what strangers show."""

    owner: Tenant
    database: Path
    asked: Sequence[tuple[Method, Sequence[Message]]]
    shown: dict[str, Metadata]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Everything is there once, and was read once."""
    settings = settings_in(tmp_path_factory.mktemp("hub"), LIMITS)
    bearers = make_tokens(settings.database, limits=LIMITS)
    now_nanos = time.time_ns()
    elsewhere = new_bearer(
        FULL, Kind(Role.RUNTIME, ("one-",), "elsewhere"), display_name="x", now_nanos=now_nanos
    )
    keep(settings.database, elsewhere.token, wall_nanos=now_nanos)
    unknown = new_bearer(FULL, Kind(Role.ADMIN), display_name="unknown", now_nanos=now_nanos)

    def bearing(token: str) -> Metadata:
        return (("authorization", f"Bearer {token}"),)

    mine = {
        name: bearing(bearers[f"{FULL}/{name}"].bearer_token) for name in ("operator", "runtime", "admin")
    }
    right = bearers[f"{FULL}/admin"].bearer_token
    shown: dict[str, Metadata] = {
        "nothing": (),
        "a token of the wrong form": bearing(right.upper()),
        "a token that is not there": bearing(unknown.bearer_token),
        "a wrong secret": bearing(right[: -len(WRONG_SECRET)] + WRONG_SECRET),
        "a token that is over": bearing(bearers[f"{FULL}/expired"].bearer_token),
        "a token that was revoked": bearing(bearers[f"{FULL}/revoked"].bearer_token),
        "another scheme": (("authorization", f"Basic {right}"),),
        "a token twice": bearing(right) * 2,
        "another runtime's": bearing(elsewhere.bearer_token),
        **{
            f"another hub project's {name}": bearing(bearers[f"two/{name}"].bearer_token)
            for name in ("runtime", "free", "bound", "reader", "operator")
        },
    }
    with HubInThread(settings) as hub, grpc.insecure_channel(hub.address) as channel:
        owner = Tenant(FULL, channel, mine)
        for step in (*CHANGES, *READS, *LAST):
            owner.do(step)
        # What heartbeats said is written a little later.
        until(lambda: all(row[5] for row in everything_stored(settings.database)["runtime"]))
        yield Scene(owner, settings.database, tuple(owner.asked), shown)


def everything_stored(database: Path) -> Stored:
    """Every row of every table but alerts and the floor of hub time, which goes on by itself."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        names = [
            str(name) for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        stored = {}
        for name in names:
            if name in ("alert", "hub") or name.startswith("sqlite_"):
                continue
            columns = [str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})")]
            kept = ", ".join(column for column in columns if "alert" not in column)
            stored[name] = list(connection.execute(f"SELECT {kept} FROM {name} ORDER BY {kept}"))
        return stored
    finally:
        connection.close()


def assert_same(before: Stored, after: Stored) -> None:
    for name, rows in before.items():
        assert after[name] == rows, name


@pytest.mark.parametrize(("name", "reason"), UNAUTHENTICATED.items())
def test_without_a_credential_that_counts_nothing_is_answered_and_nothing_changes(
    scene: Scene, name: str, reason: str
) -> None:
    before, alerts = everything_stored(scene.database), scene.owner.alerts()
    for method, requests in scene.asked:
        told, _ = scene.owner.send_as(scene.shown[name], method, requests)
        assert told.refusal.startswith(f"UNAUTHENTICATED {reason} "), told
        # A stream says why in its answers too, and nothing else.
        assert all(answer.startswith("error {") for answer in told.answers), told
    assert_same(before, everything_stored(scene.database))
    assert list(scene.owner.alerts()) == list(alerts)


@pytest.mark.parametrize("kind", ["runtime", "free", "bound", "reader", "operator"])
def test_with_another_hub_projects_credential_nothing_is_answered_and_nothing_changes(
    scene: Scene, kind: str
) -> None:
    before, alerts = everything_stored(scene.database), scene.owner.alerts()
    for method, requests in scene.asked:
        if "hub_project" not in requests[0].DESCRIPTOR.fields_by_name:
            continue  # it is about no hub project
        told, _ = scene.owner.send_as(scene.shown[f"another hub project's {kind}"], method, requests)
        assert told.refusal.startswith("PERMISSION_DENIED "), told
        assert all(answer.startswith("error {") for answer in told.answers), told
    assert_same(before, everything_stored(scene.database))
    assert list(scene.owner.alerts()) == list(alerts), "the owner does not hear of it"


def test_as_another_runtime_than_ones_own_nothing_changes(scene: Scene) -> None:
    before = everything_stored(scene.database)
    refused = []
    for method, requests in scene.asked:
        if _says_runtime(requests[0], "rt"):
            told, _ = scene.owner.send_as(scene.shown["another runtime's"], method, requests)
            assert told.refusal.startswith("PERMISSION_DENIED IDENTITY_MISMATCH "), told
            refused.append(method.name)
    assert {"SyncService/PushEvents", "PresenceService/Heartbeat", "JournalService/Commit"} <= set(refused)
    assert_same(before, everything_stored(scene.database))


def _says_runtime(request: Message, runtime_id: str) -> bool:
    """Whether a request says that its caller is this runtime."""
    return runtime_id in (
        getattr(request, "runtime_id", ""),
        getattr(getattr(request, "credential", None), "runtime_id", ""),
    ) and not type(request).__name__.startswith(("Get", "List"))
