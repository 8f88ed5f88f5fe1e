"""The hash that makes two commits the same: every part counts, and nothing passes from one to the next."""

from dataclasses import replace
from hashlib import sha256
from typing import TypeVar

import pytest

from hub.core.journal import Commit, NewEvent, NewOutboxMessage, commit_hash
from tests.unit.hub.journal_values import TRACE, commit, credential_of, event, message, projection

FULL = commit(
    "m",
    stream="stream é",
    expected=3,
    events=[
        event("e1", b"\x00\xff", event_type="a", time=-1, correlation="c", causation="d", trace=TRACE),
        event("e2", b"", event_type="b"),
    ],
    messages=[message("o1", b"payload", event="e1", destination="to", key="k", available=7)],
    projections=[projection("p1", b"value")],
    reply=b"reply",
)


def hash_by_hand(*parts: bytes) -> bytes:
    return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()


def eight(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def test_the_hash_is_over_all_parts_but_the_credential_and_the_message_id() -> None:
    assert commit_hash(FULL) == hash_by_hand(
        "stream é".encode(),
        eight(3),
        *(eight(2), b"e1", b"a", b"\x00\xff", eight(-1), b"c", b"d", TRACE.encode()),
        *(b"e2", b"b", b"", b"", b"", b"", b""),
        *(eight(1), b"o1", b"e1", b"to", b"k", b"payload", eight(7)),
        *(eight(1), b"p1", b"value"),
        b"reply",
    )


def test_the_golden_vector_of_the_hash() -> None:
    assert commit_hash(FULL).hex() == "0b84393fb5688dcb0bfeda2936c85a8c542d9d58a8e435f47d94e0bae3f4d779"


Named = TypeVar("Named", NewEvent, NewOutboxMessage)


def _with(part: Named, name: str, value: object) -> Named:
    return type(part)(**{**part._asdict(), name: value})


def _changed(**parts: object) -> Commit:
    return replace(FULL, **parts)  # type: ignore[arg-type]  # each part by its name


@pytest.mark.parametrize(
    "other",
    [
        _changed(stream_id="stream e"),
        _changed(expected_revision=4),
        _changed(events=FULL.events[:1]),
        _changed(events=FULL.events[::-1]),
        *(
            _changed(events=[_with(FULL.events[0], name, value), FULL.events[1]])
            for name, value in {
                "event_id": "e9",
                "event_type": "z",
                "payload": b"\x00",
                "event_time_nanos": None,
                "correlation_id": "",
                "causation_id": "cd",
                "trace_id": "",
            }.items()
        ),
        *(
            _changed(outbox_messages=[_with(FULL.outbox_messages[0], name, value)])
            for name, value in {
                "outbox_id": "o9",
                "event_id": "",
                "destination": "from",
                "ordering_key": "",
                "payload": b"",
                "available_nanos": 0,
            }.items()
        ),
        _changed(outbox_messages=[]),
        _changed(projections=[projection("p9", b"value")]),
        _changed(projections=[projection("p1", b"")]),
        _changed(projections=[]),
        _changed(reply=b""),
    ],
)
def test_every_part_counts(other: Commit) -> None:
    assert commit_hash(other) != commit_hash(FULL)


def test_the_credential_and_the_message_id_do_not_count() -> None:
    shown = credential_of("t", "b", nonce="another", token=2)
    assert commit_hash(_changed(credential=shown, message_id="another")) == commit_hash(FULL)


def test_a_time_not_given_is_not_the_time_zero() -> None:
    none, zero = commit(events=[event(time=None)]), commit(events=[event(time=0)])
    assert commit_hash(none) != commit_hash(zero)


def test_nothing_passes_from_one_part_to_the_next() -> None:
    split = [
        commit(events=[event("ab", b"c")]),
        commit(events=[event("a", b"bc")]),
        commit(events=[event("ab", b"", event_type="typec")]),
    ]
    assert len({commit_hash(each) for each in split}) == len(split)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            commit(messages=[message("p", b"r", event="v", destination="q", key="w")]),
            commit(projections=[projection("p", b"v"), projection("q", b"w"), projection("r", b"")]),
        ),
        (
            commit(events=[event("p", b"q", event_type="v"), event("r", b"s", event_type="w")]),
            commit(
                projections=[
                    projection("p", b"v"),
                    projection("q", b""),
                    projection("", b""),
                    projection("", b"r"),
                    projection("w", b"s"),
                    projection("", b""),
                    projection("", b""),
                ]
            ),
        ),
    ],
)
def test_counts_keep_the_lists_apart(one: Commit, other: Commit) -> None:
    """But for the counts, both are the same parts in the same order."""
    assert commit_hash(one) != commit_hash(other)
    assert _parts_without_counts(one) == _parts_without_counts(other)


def _parts_without_counts(of: Commit) -> list[bytes]:
    parts: list[object] = [part for event in of.events for part in event]
    parts += [
        part
        for each in of.outbox_messages
        for part in (
            each.outbox_id,
            each.event_id,
            each.destination,
            each.ordering_key,
            each.payload,
            each.available_nanos,
        )
    ]
    parts += [part for each in of.projections for part in each]
    texts = (part.decode() if isinstance(part, bytes) else part or "" for part in parts)
    return [str(text).encode() for text in texts]
