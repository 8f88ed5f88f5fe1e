"""What a restore begins anew with, and what it did."""

from dataclasses import dataclass
from typing import Final

NANOS_PER_MICROSECOND: Final = 1_000


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did: the new life of the store, and what ended with the one before.

    ``token_floor`` is what every next token and epoch lies above; ``head_positions`` are, by hub project,
    the head positions at which the new generation began, of events and of the journal.
    """

    hub_generation: str
    previous_generation: str
    token_floor: int
    schema_before: int
    schema_after: int
    ended_tenure_count: int
    dropped_receipt_count: int
    revoked_token_count: int
    kept_token_count: int
    is_clock_behind: bool
    head_positions: dict[str, tuple[int, int]]


def token_floor_of(highest_stored: int, *, now_nanos: int) -> int:
    """Return below what no token or epoch is given after a restore.

    The lost tail may have given tokens above the stored ones, but none above the time in microseconds.
    """
    return max(highest_stored, now_nanos // NANOS_PER_MICROSECOND)
