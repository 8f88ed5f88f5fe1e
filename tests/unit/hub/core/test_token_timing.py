"""How long it takes to refuse a token says nothing of what was wrong with it."""

import statistics
import time
from collections.abc import Mapping
from typing import Final

from hub.core.credential import (
    Token,
    bearer_token,
    check_token,
    hash_of_secret,
    parse_bearer_token,
)
from hub.core.identity_errors import CredentialInvalid
from hub.core.values import HubProject, Role, TokenId

BLOCKS: Final = 300
CALLS: Final = 40
"""In one block, timed together: a single call is too short for the clock."""
ATTEMPTS: Final = 5
"""A busy machine may spoil an attempt; what differs for a reason differs in each."""
DIFFERENCE_MAX: Final = 0.1
"""Of the time itself. A comparison that gives up at the first byte that differs is not seen in so short a
value; that it is none is ``hmac.compare_digest``'s to promise. A look-up or a hash more is seen."""

SECRET: Final = bytes(range(32))
TOKEN_ID: Final = TokenId("0123456789abcdef0123")
TOKEN: Final = Token(
    TOKEN_ID, hash_of_secret(SECRET), HubProject("p"), "name", Role.READER, None, (), 1, None, None
)
BOOK: Final = {TOKEN_ID: TOKEN}
REFUSED: Final[Mapping[str, str]] = {
    "an id that is not there": bearer_token(TokenId("f" * 20), SECRET),
    "a secret that is wrong from the first byte": bearer_token(TOKEN_ID, b"\xff" + SECRET[1:]),
    "a secret that is wrong in the last byte": bearer_token(TOKEN_ID, SECRET[:-1] + b"\xff"),
    "a secret that is all wrong": bearer_token(TOKEN_ID, b"\xff" * 32),
}


def refuse(text: str) -> None:
    """What a hub does with a token, up to the refusal."""
    try:
        token_id, secret_hash = parse_bearer_token(text)
        check_token(BOOK.get(token_id), secret_hash, now_nanos=1)
    except CredentialInvalid:
        return
    raise AssertionError(text)


def difference() -> float:
    """How far the medians of the classes are apart, in turns so that a machine that slows down slows all."""
    nanos: dict[str, list[int]] = {name: [] for name in REFUSED}
    for _ in range(BLOCKS):
        for name, text in REFUSED.items():
            begin = time.perf_counter_ns()
            for _ in range(CALLS):
                refuse(text)
            nanos[name].append(time.perf_counter_ns() - begin)
    medians = [statistics.median(each) for each in nanos.values()]
    return (max(medians) - min(medians)) / min(medians)


def test_what_is_wrong_with_a_token_cannot_be_told_from_the_time_that_it_takes() -> None:
    differences = []
    for _ in range(ATTEMPTS):
        differences.append(difference())
        if differences[-1] <= DIFFERENCE_MAX:
            return
    raise AssertionError(differences)
