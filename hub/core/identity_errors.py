"""Refusals about who calls; see the tree in ``core.errors``.

UNAUTHENTICATED and PERMISSION_DENIED are kept apart: the first says that the hub does not know who
calls, the second that it does, and that this caller may not.
"""

from dataclasses import dataclass

from hub.core.errors import Reason, Refusal
from hub.core.values import Role


class Unauthenticated(Refusal):
    """The hub does not know who calls."""


@dataclass(eq=False)
class CredentialMissing(Unauthenticated):
    """The call came without a credential."""

    reason = Reason.CREDENTIAL_MISSING

    def __str__(self) -> str:
        return "this hub wants a credential: a token as 'authorization: Bearer …', or a client certificate"


@dataclass(eq=False)
class CredentialInvalid(Unauthenticated):
    """The credential is none of this hub's; what about it is wrong is not told, but for its form."""

    reason = Reason.CREDENTIAL_INVALID
    problem: str = "the token is none of this hub's"

    def __str__(self) -> str:
        return self.problem


@dataclass(eq=False)
class CredentialExpired(Unauthenticated):
    """The credential was right and is over."""

    reason = Reason.CREDENTIAL_EXPIRED

    def __str__(self) -> str:
        return "the token has expired; ask an operator for a new one"


@dataclass(eq=False)
class CredentialRevoked(Unauthenticated):
    """The credential was right and was taken back."""

    reason = Reason.CREDENTIAL_REVOKED

    def __str__(self) -> str:
        return "the token was revoked; ask an operator for a new one"


class Forbidden(Refusal):
    """The hub knows who calls, and this caller may not."""


@dataclass(eq=False)
class IdentityMismatch(Forbidden):
    """The request says of itself what the credential does not; ``field`` is where."""

    reason = Reason.IDENTITY_MISMATCH
    field: str
    claimed: str

    def __str__(self) -> str:
        return f"{self.field} {self.claimed!r} is not the one that the credential is for"

    def metadata(self) -> dict[str, str]:
        return {"field": self.field, "id": self.claimed}


@dataclass(eq=False)
class PermissionDenied(Forbidden):
    """The caller may not act on a project, or not make this call.

    ``project_id`` is None where it is not about one.
    """

    reason = Reason.PERMISSION_DENIED
    sentence: str
    project_id: str | None = None

    def __str__(self) -> str:
        return self.sentence

    def metadata(self) -> dict[str, str]:
        return {} if self.project_id is None else {"projectId": self.project_id}


def project_not_covered(project_id: str) -> PermissionDenied:
    """Return the refusal of a project that the credential is not for."""
    if not project_id:
        sentence = "the credential is for some projects only; name one of them"
        return PermissionDenied(sentence)
    return PermissionDenied(f"the credential is not for project {project_id!r}", project_id)


def project_taken(project_id: str) -> PermissionDenied:
    """Return the refusal of a project that another hub project has."""
    return PermissionDenied(f"project {project_id!r} is taken by somebody else", project_id)


def role_not_allowed(role: Role, call: str) -> PermissionDenied:
    """Return the refusal of a call that a role may not make."""
    return PermissionDenied(f"the role {role.value} may not call {call}")
