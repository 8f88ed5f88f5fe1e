"""Tokens within the open transaction, for writing and for reading, written once for every engine."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from hub.core.credential import Token
from hub.core.values import HubProject, Role, RuntimeId, TokenId
from hub.store.committed_cache import CommittedCache
from hub.store.contract import Changes
from hub.store.session import Row, Session
from hub.store.staged_changes import Staged

_TokenRow = tuple[str, bytes, str, str, str, str | None, str, int, int | None, int | None]


class SqlTokenWrites:
    """Tokens as the open transaction sees them; see ``TokenWrites``."""

    def __init__(
        self,
        *,
        session: Callable[[], Session],
        make_tenant: Callable[[HubProject], int],
        changes: Callable[[], Changes],
        entries_max: int,
    ) -> None:
        """Bind what gives the open session, a tenant's key, and what the open command changed."""
        self._session = session
        self._make_tenant = make_tenant
        self._changes = changes
        self._tokens: CommittedCache[TokenId, Token] = CommittedCache(entries_max)

    @property
    def staged(self) -> tuple[Staged, ...]:
        """What follows the open transaction."""
        return (self._tokens,)

    def token(self, token_id: TokenId) -> Token | None:
        """Return a token."""
        token = self._tokens.get(token_id)
        if token is None:
            sql = self._session()
            composed = f"{sql.fragment('token_columns')} {sql.fragment('token_is')}"
            rows = list(sql.fetch_composed(composed, {"token_id": token_id}))
            if not rows:
                return None
            token = _token_from_row(rows[0])
            self._tokens.put(token_id, token)
        return token

    def create(self, token: Token) -> None:
        """Keep a new token."""
        self._session().run(
            "create_token",
            (
                token.token_id,
                self._make_tenant(token.hub_project),
                token.secret_hash,
                token.display_name,
                token.role.value,
                token.runtime_id,
                json.dumps(token.project_id_prefixes, ensure_ascii=False),
                token.create_nanos,
                token.expire_nanos,
            ),
        )
        self._put(token)

    def revoke(self, token_id: TokenId, now_nanos: int) -> Token:
        """Take a token back."""
        token = self.token(token_id)
        if token is None:
            raise LookupError(token_id)
        revoked = token
        if token.revoke_nanos is None:
            self._session().run("revoke_token", (now_nanos, token_id))
            revoked = replace(token, revoke_nanos=now_nanos)
        self._put(revoked)
        return revoked

    def count(self) -> int:
        """Count them."""
        rows = cast("list[tuple[int]]", list(self._session().fetch("count_tokens")))
        return rows[0][0]

    def count_of(self, hub_project: HubProject) -> int:
        """Count a hub project's."""
        found = self._session().fetch("count_tokens_of_hub_project", (hub_project,))
        return cast("list[tuple[int]]", list(found))[0][0]

    def has_other_hub_project(self, hub_project: HubProject) -> bool:
        """Whether there is another tenant."""
        return bool(list(self._session().fetch("find_other_hub_project", (hub_project,))))

    def _put(self, token: Token) -> None:
        self._tokens.put(token.token_id, token)
        self._changes().tokens[token.token_id] = token


class SqlTokenReads:
    """Tokens in one state of the store; see ``TokenReads``."""

    def __init__(self, session: Session, *, find_tenant: Callable[[HubProject], int | None]) -> None:
        """Read over a session whose transaction is open."""
        self._session = session
        self._find_tenant = find_tenant

    def tokens(
        self, hub_project: HubProject | None, *, after: TokenId | None, entries_max: int
    ) -> list[Token]:
        """Return tokens."""
        sql = self._session
        which = "tokens_in_order" if hub_project is None else "tokens_of_hub_project"
        composed = f"{sql.fragment('token_columns')} {sql.fragment(which)}"
        named = {
            "hub_project_key": None if hub_project is None else self._find_tenant(hub_project),
            "after_token_id": "" if after is None else after,
            "entries_max": entries_max,
        }
        return [_token_from_row(row) for row in sql.fetch_composed(composed, named)]


def _token_from_row(row: Row) -> Token:
    token_id, secret_hash, hub_project, name, role, runtime_id, prefixes, created, expires, revoked = cast(
        "_TokenRow", row
    )
    return Token(
        token_id=TokenId(token_id),
        secret_hash=secret_hash,
        hub_project=HubProject(hub_project),
        display_name=name,
        role=Role(role),
        runtime_id=None if runtime_id is None else RuntimeId(runtime_id),
        project_id_prefixes=tuple(cast("list[str]", json.loads(prefixes))),
        create_nanos=created,
        expire_nanos=expires,
        revoke_nanos=revoked,
    )
