"""Which role may call what: the table of the code, that of the documents, and the contract say the same."""

import re
from pathlib import Path
from typing import Final

from hub.core.permissions import PERMISSIONS
from hub.core.values import Role
from hub.rpc.identity import OPEN_SERVICES, OWN_METHODS_PREFIX
from synchub.v1 import (
    hub_service_pb2,
    journal_service_pb2,
    lease_service_pb2,
    presence_service_pb2,
    sync_service_pb2,
)

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROLES: Final = (Role.RUNTIME, Role.READER, Role.OPERATOR, Role.ADMIN)
CONTRACT: Final = (
    sync_service_pb2.DESCRIPTOR,
    presence_service_pb2.DESCRIPTOR,
    lease_service_pb2.DESCRIPTOR,
    journal_service_pb2.DESCRIPTOR,
    hub_service_pb2.DESCRIPTOR,
)
ROW: Final = re.compile(r"^\| (\w+Service) \| ((?:`\w+`(?:, )?)+) \| (.*) \|$", re.M)


def test_the_table_has_every_call_of_the_contract_and_no_other() -> None:
    calls = {
        f"{service.name}/{method.name}"
        for file in CONTRACT
        for service in file.services_by_name.values()
        for method in service.methods
    }
    assert set(PERMISSIONS) == calls
    files = {path.stem for path in (ROOT / "protos/synchub/v1").glob("*_service.proto")}
    # The agent's own service is on a socket that only its user can open.
    assert files - {"runtime_agent_service"} == {Path(file.name).stem for file in CONTRACT}


def test_people_are_shown_the_same_table() -> None:
    (header,) = re.findall(r"^\| service \| calls \| (.*) \|$", PAGE, re.M)
    assert header.split(" | ") == [role.value for role in ROLES]
    shown: dict[str, frozenset[Role]] = {}
    for service, names, cells in ROW.findall(PAGE):
        marks = cells.split(" | ")
        assert len(marks) == len(ROLES)
        assert set(marks) <= {"yes", "–"}
        roles = frozenset(role for role, mark in zip(ROLES, marks, strict=True) if mark == "yes")
        for name in re.findall(r"`(\w+)`", names):
            assert f"{service}/{name}" not in shown, "it is shown twice"
            shown[f"{service}/{name}"] = roles
    assert shown == PERMISSIONS


def test_every_call_has_somebody_who_may_make_it_and_nobody_without_a_name() -> None:
    assert all(roles and Role.ANONYMOUS not in roles for roles in PERMISSIONS.values())


def test_only_health_and_reflection_are_open() -> None:
    assert OPEN_SERVICES == ("/grpc.health.v1.Health/", "/grpc.reflection.")
    assert not any(prefix.startswith(OWN_METHODS_PREFIX) for prefix in OPEN_SERVICES)
    assert "Open to everybody who reaches the ports: gRPC's health and reflection" in PAGE
