"""What services may rely on of bearer tokens, the same over every engine.

Parts of ``WriteTransaction`` and ``ReadTransaction``, and what is said there holds here. Tokens are never
dropped: alerts and logs name them.
"""

from typing import Protocol

from hub.core.credential import Token
from hub.core.values import HubProject, TokenId


class TokenWrites(Protocol):
    """What may be changed of tokens within the open transaction."""

    def token(self, token_id: TokenId) -> Token | None:
        """Return a token of any hub project, None where there is none."""

    def create(self, token: Token) -> None:
        """Keep a new token; its hub project is created where it is new."""

    def revoke(self, token_id: TokenId, now_nanos: int) -> Token:
        """Take a token back that is there; one that was taken back before stays as it is.

        Returns it as it is now. It is among the changes either way: that a former COMMIT took it back may
        not have been heard.
        """

    def count(self) -> int:
        """Return how many tokens are kept."""

    def count_of(self, hub_project: HubProject) -> int:
        """Return how many of them are a hub project's."""

    def has_other_hub_project(self, hub_project: HubProject) -> bool:
        """Whether there is a hub project besides this one."""


class TokenReads(Protocol):
    """What may be read of tokens."""

    def tokens(
        self, hub_project: HubProject | None, *, after: TokenId | None, entries_max: int
    ) -> list[Token]:
        """Return tokens of a hub project, or of all where None is given, ascending by their ids."""
