"""Calls that may be repeated: the same call again gets the stored answer."""

from dataclasses import dataclass
from typing import NamedTuple

from hub.core.errors import IdempotencyConflict
from hub.core.tenure import Tenure


@dataclass(frozen=True, slots=True)
class Repeat:
    """What makes a call repeatable: its id, and what has to be the same for it to be the same call.

    ``parameters_hash`` is over all of the request that says what to do, the nonce included.
    """

    request_id: str
    method: str
    parameters_hash: bytes


class LeaseAnswer(NamedTuple):
    """What a call that changes a tenure answers.

    ``waited_nanos`` is how long the hub queued the call; ``is_renewed`` says that the tenure was the
    caller's before, ``is_replayed`` that this is the stored answer of an earlier call.
    """

    tenure: Tenure
    is_renewed: bool = False
    waited_nanos: int = 0
    is_replayed: bool = False


@dataclass(frozen=True, slots=True)
class Receipt:
    """The stored answer of a call. The answer's tenure has no hash of its nonce."""

    repeat: Repeat
    answer: LeaseAnswer


def decide_repeat(stored: Receipt | None, repeat: Repeat) -> LeaseAnswer | None:
    """Return the stored answer, marked as replayed; None where the call is to be made.

    Raises: IdempotencyConflict where the id was used for another call.
    """
    if stored is None:
        return None
    if stored.repeat != repeat:
        raise IdempotencyConflict("request_id", repeat.request_id)
    return stored.answer._replace(is_replayed=True)
