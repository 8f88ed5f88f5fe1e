"""All bearer tokens in memory, as of the last COMMIT: who a token's bearer is, and whether it still counts.

Every call asks, so nothing is read from the store for it. Bounded by ``tokens_max``, which whoever makes
tokens keeps.
"""

from collections.abc import Callable

from hub.core.credential import Token, check_token, parse_bearer_token, token_fault
from hub.core.errors import Refusal
from hub.core.identity_errors import CredentialInvalid, CredentialRevoked
from hub.core.values import Caller, TokenId
from hub.service.readers import Readers
from hub.store.contract import Changes, WriteTransaction

TOKENS_READ_AT_ONCE = 1_000
"""Tokens in one read, so that no read is long."""


class TokenBook:
    """Tokens by their ids. Used on the loop only."""

    def __init__(self, *, credential_nanos: Callable[[], int]) -> None:
        """Begin empty; ``credential_nanos`` gives the later of hub time and the wall clock."""
        self._credential_nanos = credential_nanos
        self._tokens: dict[TokenId, Token] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    async def load(self, readers: Readers) -> None:
        """Read all tokens; call once, before the first call is taken."""
        after: TokenId | None = None
        while True:
            last = after
            page = await readers.call(
                lambda transaction, last=last: transaction.tokens.tokens(  # type: ignore[misc]  # bound now
                    None, after=last, entries_max=TOKENS_READ_AT_ONCE
                )
            )
            self._tokens.update((token.token_id, token) for token in page)
            if len(page) < TOKENS_READ_AT_ONCE:
                return
            after = page[-1].token_id

    def announce(self, changes: Changes) -> None:
        """Take over what was committed; called on the loop before the answers go out."""
        self._tokens.update(changes.tokens)

    def authenticate(self, bearer_token: str) -> Token:
        """Return the token that somebody sent.

        Raises: CredentialInvalid, CredentialRevoked, CredentialExpired.
        """
        token_id, secret_hash = parse_bearer_token(bearer_token)
        return check_token(self._tokens.get(token_id), secret_hash, now_nanos=self._credential_nanos())

    def counts(self) -> dict[str, int]:
        """Return how many tokens are live, expired and revoked."""
        now_nanos, counts = self._credential_nanos(), {"live": 0, "expired": 0, "revoked": 0}
        for token in self._tokens.values():
            fault = token_fault(token, now_nanos)
            if fault is None:
                counts["live"] += 1
            else:
                counts["revoked" if isinstance(fault, CredentialRevoked) else "expired"] += 1
        return counts

    def fault(self, token_id: TokenId) -> Refusal | None:
        """Return why a token that counted once does not any more, None where it does."""
        token = self._tokens.get(token_id)
        if token is None:  # the store was put back behind the hub's back
            return CredentialInvalid()
        return token_fault(token, self._credential_nanos())


def check_still_counts(transaction: WriteTransaction, caller: Caller, *, credential_nanos: int) -> None:
    """Return where the caller's token counts inside the transaction: what was queued before a revocation
    and comes to its turn after it is refused too.

    Raises: CredentialInvalid, CredentialRevoked, CredentialExpired.
    """
    if caller.token_id is None:
        return
    token = transaction.tokens.token(caller.token_id)
    fault = CredentialInvalid() if token is None else token_fault(token, credential_nanos)
    if fault is not None:
        raise fault
