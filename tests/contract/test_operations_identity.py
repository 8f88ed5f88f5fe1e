"""Who may take backups and verify, and whose events; that a restore lets nobody in who was let in before."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from hub.store.sqlite.restore import Restore, restore_backup
from synchub.v1.hub_service_pb2 import (
    BackupHubRequest,
    BackupHubResponse,
    GetHubInfoRequest,
    VerifyEventsRequest,
)
from tests.contract.conftest import settings_in
from tests.contract.conversation import refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.pushing import events, push
from tests.contract.secured import KINDS, SecuredHub, Stubs, running_secured_hub

SECONDS_MAX: Final = 20.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def secured(folder: Path) -> Iterator[SecuredHub]:
    (folder / "backups").mkdir()
    settings = replace(settings_in(folder), backup_folder=folder / "backups")
    with running_secured_hub(settings) as secured:
        for hub_project in ("one", "two"):
            for project in ("a", "c"):
                push(
                    secured.stubs(f"{hub_project}/runtime").sync,
                    hub_project,
                    project_id=f"{hub_project}-{project}",
                    batch=events(1, 3),
                )
        yield secured


def backing_up(stubs: Stubs, name: str = "") -> Callable[[], list[BackupHubResponse]]:
    return lambda: list(stubs.hub.BackupHub(BackupHubRequest(file_name=name), timeout=SECONDS_MAX))


def verified_count(stubs: Stubs, *, hub_project: str = "", project: str = "") -> int:
    request = VerifyEventsRequest(hub_project=hub_project, project_id=project)
    *_, last = stubs.hub.VerifyEvents(request, timeout=SECONDS_MAX)
    return last.event_count


def info(stubs: Stubs) -> object:
    return stubs.hub.GetHubInfo(GetHubInfoRequest(), timeout=SECONDS_MAX)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"admin"}))
def test_only_an_admin_takes_backups(secured: SecuredHub, folder: Path, kind: str) -> None:
    before = sorted(folder.joinpath("backups").iterdir())
    refusal = refusal_of(backing_up(secured.stubs(f"one/{kind}"), "refused.db"))
    assert refusal.code in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
    assert sorted(folder.joinpath("backups").iterdir()) == before


def test_an_operator_verifies_what_its_credential_covers(secured: SecuredHub) -> None:
    assert verified_count(secured.stubs("one/operator")) == 6
    assert verified_count(secured.stubs("one/admin"), hub_project="two") == 6
    prefixed = secured.stubs("one/prefixed-operator")
    assert verified_count(prefixed, project="one-a") == 3
    for project in ("", "one-c", "two-a"):
        refusal = refusal_of(partial(verified_count, prefixed, project=project))
        assert refusal.reason == "PERMISSION_DENIED"
    refusal = refusal_of(lambda: verified_count(secured.stubs("one/operator"), hub_project="two"))
    assert refusal.reason == "IDENTITY_MISMATCH"
    assert refusal_of(lambda: verified_count(secured.stubs("one/reader"))).reason == "PERMISSION_DENIED"


def test_a_restored_hub_lets_nobody_in_who_was_let_in_before(
    secured: SecuredHub, folder: Path, tmp_path: Path
) -> None:
    *_, last = backing_up(secured.stubs("one/admin"), "b.db")()
    assert last.phase == BackupHubResponse.PHASE_DONE
    for name, are_kept in (("revoked", False), ("kept", True)):
        (tmp_path / name).mkdir()
        plan = Restore(f"generation {name}", time.time_ns(), are_kept)
        list(
            restore_backup(
                folder / "backups" / "b.db", tmp_path / name / "hub.db", restore=plan, limits=Limits()
            )
        )
        with (
            HubInThread(settings_in(tmp_path / name)) as hub,
            SecuredHub(hub, secured.bearers, tmp_path / name / "hub.db") as restored,
        ):
            if are_kept:
                assert info(restored.stubs("one/admin"))
            else:
                assert refusal_of(partial(info, restored.stubs("one/admin"))).reason == "CREDENTIAL_REVOKED"
                # And not because there are no live tokens is anybody let in without one.
                assert refusal_of(partial(info, restored.stubs_sending())).reason == "CREDENTIAL_MISSING"
