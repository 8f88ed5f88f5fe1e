"""Appends: sequences, hashes, repeats, refusals."""

from pathlib import Path

import pytest

from runtime_agent.core.errors import (
    AppendIdReusedError,
    EventInvalidError,
    LogFullError,
    RunFinalError,
    SequenceExhaustedError,
    WrongSequenceError,
)
from runtime_agent.core.values import Appended, AppendRequest, HubLimits, LogEvent, NewEvent, RunKey
from runtime_agent.event_log.checks import DEFAULT_LIMITS
from runtime_agent.event_log.contract import AppendOutcome
from runtime_agent.event_log.opening import take_folder
from runtime_agent.event_log.sqlite_log import SqliteEventLog
from synchub.contract import SEQUENCE_MAX, chain_hash_after, chain_hash_at_start, content_hash

RUN = RunKey("p", "r")
NOW = 1_700_000_000_123_456_789


def append(log: SqliteEventLog, *requests: AppendRequest, now_nanos: int = NOW) -> tuple[AppendOutcome, ...]:
    return log.append(requests, now_nanos=now_nanos)


def request(*payloads: bytes, run: RunKey = RUN, append_id: str = "", expected: int = 0) -> AppendRequest:
    return AppendRequest(run, tuple(NewEvent("line", each) for each in payloads), append_id, expected)


def everything(log: SqliteEventLog, run: RunKey = RUN) -> tuple[LogEvent, ...]:
    return log.read_events(run, after_sequence=0, count_max=100_000, bytes_max=2**40)


def test_sequences_go_on_from_the_last_one_over_requests_and_groups(log: SqliteEventLog) -> None:
    assert append(log, request(b"a", b"b"), request(b"c")) == (Appended(1, 2), Appended(3, 3))
    assert append(log, request(b"d")) == (Appended(4, 4),)
    assert [(event.sequence, event.payload) for event in everything(log)] == [
        (1, b"a"),
        (2, b"b"),
        (3, b"c"),
        (4, b"d"),
    ]


def test_an_event_is_read_as_it_was_appended_with_its_hashes(log: SqliteEventLog) -> None:
    attributes = {"b": "2", "a": "é", "empty": ""}
    event = NewEvent("step.done", b"\0\xff\n", -5, attributes, is_final=True)
    append(log, AppendRequest(RUN, (event,)))
    digest = content_hash("step.done", -5, is_final=True, attributes=attributes, payload=b"\0\xff\n")
    chain = chain_hash_after(chain_hash_at_start("p", "r"), [digest])
    assert everything(log) == (LogEvent(1, "step.done", -5, attributes, True, b"\0\xff\n", digest, chain, 1),)
    state = log.load_run(RUN)
    assert state is not None
    assert (state.last_sequence, state.chain_hash, state.is_final) == (1, chain, True)


def test_an_empty_payload_is_not_a_dropped_one(log: SqliteEventLog) -> None:
    append(log, request(b""))
    assert everything(log)[0].payload == b""


def test_the_time_is_stamped_where_none_is_given_unless_the_request_says_otherwise(
    log: SqliteEventLog,
) -> None:
    append(log, request(b"a"))
    append(log, AppendRequest(RUN, (NewEvent("line", b"b"),), stamp_time=False))
    append(log, AppendRequest(RUN, (NewEvent("line", b"c", 7),)))
    assert [event.event_time_nanos for event in everything(log)] == [NOW, None, 7]


def test_an_append_id_is_answered_and_not_doubled_although_the_stamp_differs(log: SqliteEventLog) -> None:
    first = append(log, request(b"a", append_id="one"), request(b"a", append_id="one"))
    assert first == (Appended(1, 1), Appended(1, 1, is_repeat=True))
    append(log, request(b"other"))
    assert append(log, request(b"a", append_id="one"), now_nanos=NOW + 1) == (Appended(1, 1, is_repeat=True),)
    assert len(everything(log)) == 2


def test_an_append_id_with_other_content_is_refused(log: SqliteEventLog) -> None:
    append(log, request(b"a", append_id="one"))
    (refusal,) = append(log, request(b"b", append_id="one"))
    assert isinstance(refusal, AppendIdReusedError)
    assert len(everything(log)) == 1


def test_an_append_id_belongs_to_its_run(log: SqliteEventLog) -> None:
    append(log, request(b"a", append_id="one"))
    assert append(log, request(b"b", run=RunKey("p", "r2"), append_id="one")) == (Appended(1, 1),)


def test_another_sequence_than_the_expected_one_is_refused(log: SqliteEventLog) -> None:
    (refusal,) = append(log, request(b"a", expected=2))
    assert isinstance(refusal, WrongSequenceError)
    assert log.load_run(RUN) is None
    assert append(log, request(b"a", expected=1)) == (Appended(1, 1),)


def test_nothing_comes_after_a_final_event(log: SqliteEventLog) -> None:
    append(log, AppendRequest(RUN, (NewEvent("end", is_final=True),)))
    (refusal,) = append(log, request(b"a"))
    assert isinstance(refusal, RunFinalError)
    assert len(everything(log)) == 1


def test_a_refused_request_does_not_disturb_its_neighbours(log: SqliteEventLog) -> None:
    outcomes = append(log, request(b"a"), request(b"x", expected=9), request(b"b"))
    assert (outcomes[0], outcomes[2]) == (Appended(1, 1), Appended(2, 2))
    assert isinstance(outcomes[1], WrongSequenceError)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (AppendRequest(RunKey("", "r"), (NewEvent("t"),)), "project_id"),
        (AppendRequest(RunKey("p", "r\0"), (NewEvent("t"),)), "run_id"),
        (AppendRequest(RunKey("p", "\udc80"), (NewEvent("t"),)), "run_id"),
        (AppendRequest(RUN, ()), "events"),
        (AppendRequest(RUN, (NewEvent("t"),) * 1025), "events"),
        (AppendRequest(RUN, (NewEvent(""),)), "events[0].event_type"),
        (AppendRequest(RUN, (NewEvent("t"), NewEvent("t" * 129))), "events[1].event_type"),
        (AppendRequest(RUN, (NewEvent("t", bytes(2**20 + 1)),)), "events[0].payload"),
        (AppendRequest(RUN, (NewEvent("t", b"", 2**63),)), "events[0].event_time"),
        (AppendRequest(RUN, (NewEvent("t", b"", None, {"": "v"}),)), "events[0].attributes"),
        (AppendRequest(RUN, (NewEvent("t", is_final=True), NewEvent("t"))), "events[0].is_final"),
        (AppendRequest(RUN, (NewEvent("t"),), append_id=" x"), "append_id"),
        (AppendRequest(RUN, (NewEvent("t"),), expected_sequence=-1), "expected_sequence"),
    ],
)
def test_what_the_hub_would_refuse_is_refused_here(
    log: SqliteEventLog, bad: AppendRequest, field: str
) -> None:
    (refusal,) = append(log, bad)
    assert isinstance(refusal, EventInvalidError)
    assert refusal.field == field
    assert log.load_totals().run_count == 0


def test_the_limits_that_the_hub_told_hold_and_survive_a_restart(tmp_path: Path) -> None:
    values = {name: getattr(DEFAULT_LIMITS, name) for name in HubLimits.__slots__}
    tighter = HubLimits(**{**values, "payload_bytes_max": 3})
    held = take_folder(str(tmp_path), role="test")
    held.log.save_hub_limits(tighter)
    held.close()
    held = take_folder(str(tmp_path), role="test")
    try:
        assert held.log.load_hub_memory().limits == tighter
        assert append(held.log, request(b"abc")) == (Appended(1, 1),)
        (refusal,) = append(held.log, request(b"abcd"))
        assert isinstance(refusal, EventInvalidError)
    finally:
        held.close()


def test_a_full_log_refuses_with_a_sentence_and_keeps_what_it_has(tmp_path: Path) -> None:
    held = take_folder(str(tmp_path), role="test", log_bytes_max=200_000)
    try:
        outcomes = [append(held.log, request(bytes(50_000)))[0] for _ in range(4)]
        assert outcomes[0] == Appended(1, 1)
        assert isinstance(outcomes[-1], LogFullError)
        count = sum(isinstance(outcome, Appended) for outcome in outcomes)
        assert len(everything(held.log)) == count
    finally:
        held.close()


def test_sequences_do_not_wrap_at_the_end(log: SqliteEventLog) -> None:
    append(log, request(b"a"))
    connection = log._connected()
    connection.execute("UPDATE run SET last_sequence = ?", (SEQUENCE_MAX - 1,))
    log._heads.clear()
    (refusal,) = append(log, request(b"a", b"b"))
    assert isinstance(refusal, SequenceExhaustedError)
    assert append(log, request(b"a")) == (Appended(SEQUENCE_MAX, SEQUENCE_MAX),)
    assert isinstance(append(log, request(b"a"))[0], SequenceExhaustedError)
