"""How a command that follows a hub goes on when the hub goes away: it says so, waits, and asks again."""

import sys
import time
from typing import Final

from hub.cli.options import hub_addresses
from hub.cli.output import fail_refused
from hub.cli.shown_credentials import credential_source
from synchub.channel import Refusal, explain

RETRY_SECONDS_FIRST: Final = 0.5
RETRY_SECONDS_MAX: Final = 15.0
"""How long to wait before the hub is asked again; doubled each time up to the largest."""
PASSING_REASONS: Final = ("", "HUB_STOPPING", "STORAGE_UNAVAILABLE", "LIMIT_REACHED", "RATE_LIMITED")
"""Refusals that pass by themselves; the first is a lost connection, LIMIT_REACHED maybe an idle pager."""

CREDENTIAL_OVER_REASONS: Final = ("CREDENTIAL_EXPIRED", "CREDENTIAL_REVOKED")
"""What the stream was opened with counts no more."""


class Reconnecting:
    """The waits between the tries of one stream."""

    def __init__(self, hub: str) -> None:
        """Nothing was answered yet by the hubs that ``--hub`` names."""
        self._addresses = hub_addresses(hub)
        self._credentials = credential_source()
        self._shown = self._credentials.current()
        self._was_answered = False
        self._is_away = False
        self._retry_seconds = RETRY_SECONDS_FIRST

    def answered(self) -> None:
        """The hub answered: the next wait is a short one. Who was told that it is away is told this too."""
        if self._is_away:
            print("synchub: the hub answers again", file=sys.stderr)
            self._is_away = False
        self._was_answered = True
        self._retry_seconds = RETRY_SECONDS_FIRST

    def wait_after(self, refusal: Refusal) -> None:
        """Wait before the next try, or end the process where there is no sense in one.

        A hub that was never there is a mistake in the command; one that was comes back.
        """
        if not (self._was_answered and (refusal.reason in PASSING_REASONS or self._is_replaced(refusal))):
            fail_refused(refusal, self._addresses)
        # A hub that counts requests says when there is room for the next.
        asked = min(refusal.retry_delay_seconds or 0.0, RETRY_SECONDS_MAX)
        wait_seconds = max(self._retry_seconds, asked)
        print(
            f"synchub: {explain(refusal, self._addresses)}; trying again in {wait_seconds:.1f} s",
            file=sys.stderr,
        )
        self._is_away = True
        time.sleep(wait_seconds)
        self._retry_seconds = min(self._retry_seconds * 2, RETRY_SECONDS_MAX)

    def _is_replaced(self, refusal: Refusal) -> bool:
        """Whether a token is over and another one has taken its place in the file."""
        if refusal.reason not in CREDENTIAL_OVER_REASONS:
            return False
        before, self._shown = self._shown, self._credentials.refreshed()
        return self._shown != before
