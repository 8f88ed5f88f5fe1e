"""Which role may make which call.

One table, by service and method; docs/security.md shows it to people, and a test holds the two and the
contract together. What a caller may make is bound to its hub project all the same, and where the
credential says so to one runtime and to some projects.
"""

from collections.abc import Mapping
from typing import Final

from hub.core.identity_errors import PermissionDenied, role_not_allowed
from hub.core.values import Role

_ALL: Final = frozenset((Role.RUNTIME, Role.READER, Role.OPERATOR, Role.ADMIN))
_RUNTIMES: Final = frozenset((Role.RUNTIME,))
_ACTING: Final = frozenset((Role.RUNTIME, Role.OPERATOR, Role.ADMIN))
_LOOKING_AFTER: Final = frozenset((Role.READER, Role.OPERATOR, Role.ADMIN))
_OPERATORS: Final = frozenset((Role.OPERATOR, Role.ADMIN))
_ADMINS: Final = frozenset((Role.ADMIN,))
_ABOVE_ALL: Final = frozenset((Role.ADMIN, Role.ANONYMOUS))

PERMISSIONS: Final[Mapping[str, frozenset[Role]]] = {
    "SyncService/PushEvents": _RUNTIMES,
    "SyncService/ReconcileRuns": _RUNTIMES,
    "SyncService/GetRun": _ALL,
    "SyncService/ListRuns": _ALL,
    "SyncService/ListEvents": _ALL,
    "SyncService/ExportEvents": _ALL,
    "SyncService/WatchEvents": _ALL,
    "SyncService/ListAlerts": _LOOKING_AFTER,
    "SyncService/WatchAlerts": _LOOKING_AFTER,
    "SyncService/AcknowledgeAlert": _OPERATORS,
    "SyncService/BindProject": _OPERATORS,
    "SyncService/ReleaseProject": _OPERATORS,
    "SyncService/ListProjects": _OPERATORS,
    "PresenceService/Heartbeat": _RUNTIMES,
    "PresenceService/GetRuntime": _ALL,
    "PresenceService/ListRuntimes": _ALL,
    "PresenceService/WatchRuntimes": _ALL,
    "LeaseService/AcquireLease": _ACTING,
    "LeaseService/RenewLease": _ACTING,
    "LeaseService/RenewLeases": _ACTING,
    "LeaseService/ReleaseLease": _ACTING,
    "LeaseService/TransferLease": _ACTING,
    "LeaseService/TakeoverLease": _ACTING,
    "LeaseService/AbortLease": _ACTING,
    "LeaseService/CheckLease": _ALL,
    "LeaseService/GetLease": _ALL,
    "LeaseService/ListLeases": _ALL,
    "LeaseService/WatchLeases": _ALL,
    "LeaseService/GetResourceState": _ALL,
    "LeaseService/BeginMaintenance": _ACTING,
    "LeaseService/RenewMaintenance": _ACTING,
    "LeaseService/FinishMaintenance": _ACTING,
    "JournalService/Commit": _RUNTIMES,
    "JournalService/ListStreamEvents": _ALL,
    "JournalService/ListStreams": _ALL,
    "JournalService/GetProjection": _ALL,
    "JournalService/ListJournal": _ALL,
    "JournalService/WatchJournal": _ALL,
    "JournalService/ListOutboxMessages": _ALL,
    "JournalService/ClaimOutboxMessages": _RUNTIMES,
    "JournalService/AcknowledgeOutboxMessage": _RUNTIMES,
    "JournalService/ReturnOutboxMessage": _RUNTIMES,
    "JournalService/ReleaseOutboxMessage": _ACTING,
    "HubService/GetHubInfo": _ALL,
    "HubService/CreateToken": _OPERATORS,
    "HubService/ListTokens": _OPERATORS,
    "HubService/RevokeToken": _OPERATORS,
    "HubService/BackupHub": _ADMINS,
    "HubService/PruneEvents": _OPERATORS,
    "HubService/VerifyEvents": _OPERATORS,
}
"""The roles that may make each call of ours."""


def check_permission(role: Role, call: str) -> None:
    """Return where a role may make a call ("SyncService/PushEvents"); nobody may make an unknown one.

    Raises: PermissionDenied.
    """
    if role is not Role.ANONYMOUS and role not in PERMISSIONS.get(call, frozenset()):
        raise role_not_allowed(role, call)


def check_role_given(giver: Role, given: Role) -> None:
    """Return where a caller of one role may make tokens of another.

    Raises: PermissionDenied: only administrators make administrators.
    """
    if given is Role.ADMIN and giver not in _ABOVE_ALL:
        raise PermissionDenied("only an admin makes tokens of the role admin")


def check_role_revoked(revoker: Role, role: Role) -> None:
    """Return where a caller of one role may take back a token of another.

    Raises: PermissionDenied: only administrators revoke administrators.
    """
    if role is Role.ADMIN and revoker not in _ABOVE_ALL:
        raise PermissionDenied("only an admin revokes tokens of the role admin")
