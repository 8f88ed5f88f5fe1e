"""Large answers that were asked for and are not read yet: counted, so that the hub does not keep as many as
somebody asks for.
"""

from collections import Counter
from typing import Final

from google.protobuf.message import Message

from hub.core.errors import LimitReached

LARGE_ANSWER_BYTES: Final = 64 * 1024
"""Smaller answers are not counted: calls and streams are bounded by their number."""


class UnreadAnswers:
    """Bytes of large answers that are being written, by who asked. Used on the loop only."""

    def __init__(self) -> None:
        """Begin with none."""
        self._bytes: Counter[str] = Counter()

    def begin(self, asker: str, answer: object, *, bytes_max: int) -> int:
        """Count an answer that is to be written; return what to give ``end`` once it is, 0 for a small one.

        Raises: LimitReached where too much of what the same asked for is not read yet.
        """
        size = answer.ByteSize() if isinstance(answer, Message) else 0
        if size < LARGE_ANSWER_BYTES:
            return 0
        if self._bytes[asker] + size > bytes_max:
            raise LimitReached("credential_unread_answer_bytes_max", bytes_max)
        self._bytes[asker] += size
        return size

    def end(self, asker: str, size: int) -> None:
        """Count an answer out that is written, or given up."""
        self._bytes[asker] -= size
        if not self._bytes[asker]:
            del self._bytes[asker]
