"""Bearer tokens as use cases: made, listed, revoked.

Who may give what to whom is decided here, in the transaction that does it; ``hub.service.token_book``
decides who is let in by them. A secret is in one answer and nowhere else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hub.core.credential import (
    SECRET_BYTES,
    TOKEN_ID_BYTES,
    Token,
    bearer_token,
    hash_of_secret,
)
from hub.core.errors import InvalidRequest, LimitReached, NotFound, Violation
from hub.core.limits import Limits
from hub.core.permissions import check_role_given, check_role_revoked
from hub.core.values import Caller, Role, RuntimeId, TokenId
from hub.service.readers import Readers
from hub.service.token_book import TOKENS_READ_AT_ONCE, check_still_counts
from hub.service.writer import AsyncWriter, Command
from hub.store.contract import WriteTransaction


@dataclass(frozen=True, slots=True)
class NewToken:
    """What token to make; ``ttl_nanos`` is None where it shall not end by itself."""

    display_name: str
    role: Role
    runtime_id: RuntimeId | None
    project_id_prefixes: tuple[str, ...]
    ttl_nanos: int | None


class CreatedToken(NamedTuple):
    """A new token as it is kept, and what its bearer sends."""

    token: Token
    bearer_token: str

    def __repr__(self) -> str:
        """Say which it is, without its secret."""
        return f"CreatedToken({self.token!r})"


class Tokens:
    """The use cases of who gives others access."""

    def __init__(
        self,
        writer: AsyncWriter,
        readers: Readers,
        *,
        limits: Limits,
        credential_nanos: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """Bind the writer; ``credential_nanos`` gives the time by which credentials end, ``random_bytes``
        so many bytes that nobody can guess.
        """
        self._writer = writer
        self._readers = readers
        self._limits = limits
        self._credential_nanos = credential_nanos
        self._random_bytes = random_bytes

    async def create(self, caller: Caller, wanted: NewToken) -> CreatedToken:
        """Make a token of the caller's hub project.

        Its bearer is let in once this returns. Where no answer comes there may be a token that nobody
        has: it is in the list.

        Raises: PermissionDenied for a role that the caller may not give; InvalidRequest where it needs
        prefixes; LimitReached; Unauthenticated where the caller's own token has ended since.
        """
        command = create_command(
            caller,
            wanted,
            limits=self._limits,
            credential_nanos=self._credential_nanos,
            random_bytes=self._random_bytes,
        )
        return await self._writer.call(command)

    async def tokens(self, caller: Caller, *, after: TokenId | None, entries_max: int) -> list[Token]:
        """Return tokens of the caller's hub project after one, ascending by their ids; who acts on some
        projects only sees those that are for these.
        """
        found: list[Token] = []
        while True:
            last = after
            page = await self._readers.call(
                lambda transaction, last=last: transaction.tokens.tokens(  # type: ignore[misc]  # bound now
                    caller.hub_project, after=last, entries_max=TOKENS_READ_AT_ONCE
                )
            )
            found.extend(token for token in page if is_within(caller, token.project_id_prefixes))
            if len(found) >= entries_max or len(page) < TOKENS_READ_AT_ONCE:
                return found[:entries_max]
            after = page[-1].token_id

    async def revoke(self, caller: Caller, token_id: TokenId) -> Token:
        """Take a token back for good; one that is taken back already stays as it is.

        Once this returns its calls are refused and its streams are being ended.

        Raises: NotFound where it is not the caller's to see; PermissionDenied for an administrator's;
        Unauthenticated where the caller's own token has ended since.
        """
        return await self._writer.call(
            revoke_command(caller, token_id, credential_nanos=self._credential_nanos)
        )


def create_command(
    caller: Caller,
    wanted: NewToken,
    *,
    limits: Limits,
    credential_nanos: Callable[[], int],
    random_bytes: Callable[[int], bytes],
) -> Command[CreatedToken]:
    """Return the command that makes a token; raises like ``Tokens.create``."""

    def create(transaction: WriteTransaction, now_nanos: int) -> CreatedToken:
        check_still_counts(transaction, caller, credential_nanos=credential_nanos())
        check_role_given(caller.role, wanted.role)
        is_alone = not transaction.tokens.has_other_hub_project(caller.hub_project)
        if wanted.role is Role.RUNTIME and not wanted.project_id_prefixes and not is_alone:
            sentence = "is empty; with more than one hub project a runtime needs to say for which projects"
            raise InvalidRequest([Violation("project_id_prefixes", sentence)])
        if transaction.tokens.count_of(caller.hub_project) >= limits.hub_project_tokens_max:
            raise LimitReached("hub_project_tokens_max", limits.hub_project_tokens_max)
        if transaction.tokens.count() >= limits.tokens_max:
            raise LimitReached("tokens_max", limits.tokens_max)
        secret = random_bytes(SECRET_BYTES)
        ends = None if wanted.ttl_nanos is None else max(now_nanos, credential_nanos()) + wanted.ttl_nanos
        token = Token(
            token_id=TokenId(random_bytes(TOKEN_ID_BYTES).hex()),
            secret_hash=hash_of_secret(secret),
            hub_project=caller.hub_project,
            display_name=wanted.display_name,
            role=wanted.role,
            runtime_id=wanted.runtime_id,
            project_id_prefixes=wanted.project_id_prefixes,
            create_nanos=now_nanos,
            expire_nanos=ends,
            revoke_nanos=None,
        )
        transaction.tokens.create(token)
        return CreatedToken(token, bearer_token(token.token_id, secret))

    return create


def revoke_command(
    caller: Caller, token_id: TokenId, *, credential_nanos: Callable[[], int]
) -> Command[Token]:
    """Return the command that takes a token back; raises like ``Tokens.revoke``."""

    def revoke(transaction: WriteTransaction, now_nanos: int) -> Token:
        check_still_counts(transaction, caller, credential_nanos=credential_nanos())
        token = transaction.tokens.token(token_id)
        is_seen = (
            token is not None
            and token.hub_project == caller.hub_project
            and is_within(caller, token.project_id_prefixes)
        )
        if token is None or not is_seen:
            raise NotFound("token", {"tokenId": token_id})
        check_role_revoked(caller.role, token.role)
        return transaction.tokens.revoke(token_id, now_nanos)

    return revoke


def is_within(caller: Caller, project_id_prefixes: tuple[str, ...]) -> bool:
    """Whether all projects that these prefixes cover are covered by the caller's own; none cover all."""
    return all(map(caller.covers, project_id_prefixes or ("",)))
