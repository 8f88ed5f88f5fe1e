"""Bearer tokens: their form, what is kept of them, and whether one counts.

A token is ``synchub_ID_SECRET``: a public id (20 hexadecimal digits) and a secret of 256 random bits (64
of them). The hub keeps the SHA-256 of the secret alone, which is enough for a secret that nobody can
guess. The prefix lets scanners find tokens where none should be.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from hub.core.identity_errors import (
    CredentialExpired,
    CredentialInvalid,
    CredentialRevoked,
    Unauthenticated,
)
from hub.core.values import Caller, HubProject, Role, RuntimeId, TokenId

TOKEN_ID_BYTES: Final = 10
"""Random bytes in a token's public id."""
SECRET_BYTES: Final = 32
"""Random bytes in a token's secret."""
PROJECT_ID_PREFIXES_MAX: Final = 16
"""Prefixes of one token."""
TOKEN_TTL_SECONDS_MIN: Final = 1
"""Shortest time after which a token ends."""
TOKEN_TTL_SECONDS_MAX: Final = 100 * 366 * 86_400
"""Longest time after which a token ends; who wants more lets it not end by itself."""

_FORM: Final = re.compile(r"synchub_([0-9a-f]{20})_([0-9a-f]{64})", re.ASCII)
_NO_HASH: Final = bytes(32)
"""Compared where there is no such token, so that both take as long."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept; times are Unix nanoseconds, None where there is none."""

    token_id: TokenId
    secret_hash: bytes
    hub_project: HubProject
    display_name: str
    role: Role
    runtime_id: RuntimeId | None
    project_id_prefixes: tuple[str, ...]
    create_nanos: int
    expire_nanos: int | None
    revoke_nanos: int | None

    def __repr__(self) -> str:
        """Say which it is; a hash is nobody's business."""
        return f"Token({self.token_id!r}, {self.hub_project!r}, {self.role.value})"


def bearer_token(token_id: TokenId, secret: bytes) -> str:
    """Return what the bearer sends."""
    return f"synchub_{token_id}_{secret.hex()}"


def hash_of_secret(secret: bytes) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret).digest()


def parse_bearer_token(text: str) -> tuple[TokenId, bytes]:
    """Return (id, SHA-256 of the secret) of a token.

    Raises: CredentialInvalid where it does not have the form of one.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise CredentialInvalid("what was sent as a token does not have the form synchub_ID_SECRET")
    return TokenId(found[1]), hash_of_secret(bytes.fromhex(found[2]))


def check_token(token: Token | None, secret_hash: bytes, *, now_nanos: int) -> Token:
    """Return the token where its secret is right and it counts now.

    It takes as long whether there is no such token or the secret is another one, and whether it ended is
    told only to who knows the secret. ``now_nanos`` is the later of hub time and the wall clock.

    Raises: CredentialInvalid, CredentialRevoked, CredentialExpired.
    """
    is_right = hmac.compare_digest(secret_hash, _NO_HASH if token is None else token.secret_hash)
    if token is None or not is_right:
        raise CredentialInvalid
    fault = token_fault(token, now_nanos)
    if fault is not None:
        raise fault
    return token


def token_fault(token: Token, now_nanos: int) -> Unauthenticated | None:
    """Return why a token does not count any more, None where it does."""
    if token.revoke_nanos is not None:
        return CredentialRevoked()
    if token.expire_nanos is not None and now_nanos >= token.expire_nanos:
        return CredentialExpired()
    return None


def caller_of_token(token: Token, peer: str) -> Caller:
    """Return who the bearer of a token is."""
    return Caller(
        hub_project=token.hub_project,
        runtime_id=token.runtime_id,
        role=token.role,
        peer=peer,
        credential_name=token.display_name,
        token_id=token.token_id,
        project_id_prefixes=token.project_id_prefixes,
    )
