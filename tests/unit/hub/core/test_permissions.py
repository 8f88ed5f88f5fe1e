"""Which role may make which call."""

from itertools import product

import pytest

from hub.core.identity_errors import PermissionDenied
from hub.core.permissions import PERMISSIONS, check_permission, check_role_given, check_role_revoked
from hub.core.values import Role

NAMED = tuple(role for role in Role if role is not Role.ANONYMOUS)


def may(role: Role, call: str) -> bool:
    try:
        check_permission(role, call)
    except PermissionDenied:
        return False
    return True


def test_the_table_decides() -> None:
    for role, call in product(NAMED, PERMISSIONS):
        assert may(role, call) is (role in PERMISSIONS[call]), (role, call)


def test_a_hub_without_credentials_lets_anybody_do_everything() -> None:
    assert all(may(Role.ANONYMOUS, call) for call in PERMISSIONS)


@pytest.mark.parametrize("call", ["", "SyncService", "SyncService/", "SyncService/pushevents", "Other/Call"])
def test_nobody_may_make_a_call_that_is_not_in_the_table(call: str) -> None:
    assert not any(may(role, call) for role in NAMED)


def test_a_reader_changes_nothing() -> None:
    reading = ("Get", "List", "Watch", "Export", "Check", "Verify")
    for call in PERMISSIONS:
        if not call.split("/")[1].startswith(reading):
            assert not may(Role.READER, call), call


def test_an_admin_may_all_that_an_operator_may() -> None:
    for call in PERMISSIONS:
        assert may(Role.ADMIN, call) or not may(Role.OPERATOR, call), call


def test_events_come_from_runtimes_alone() -> None:
    for call in ("SyncService/PushEvents", "PresenceService/Heartbeat", "JournalService/Commit"):
        assert [role for role in NAMED if may(role, call)] == [Role.RUNTIME]


@pytest.mark.parametrize("giver", Role)
@pytest.mark.parametrize("role", NAMED)
def test_only_admins_make_and_revoke_admins(giver: Role, role: Role) -> None:
    is_allowed = role is not Role.ADMIN or giver in (Role.ADMIN, Role.ANONYMOUS)
    for check in (check_role_given, check_role_revoked):
        if is_allowed:
            check(giver, role)
        else:
            with pytest.raises(PermissionDenied):
                check(giver, role)
