"""Waiting before the next try, but not for longer than what was refused is what would be shown again."""

import asyncio
from contextlib import suppress

from synchub.credentials import LOOK_SECONDS, CredentialContents, CredentialSource


async def wait_or_replaced(
    seconds: float, *, shown: CredentialContents, credentials: CredentialSource
) -> None:
    """Return after so many seconds, or once something else than ``shown`` would be shown."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while credentials.current() == shown:  # noqa: ASYNC110 - files tell nobody that they change
                await asyncio.sleep(LOOK_SECONDS)
