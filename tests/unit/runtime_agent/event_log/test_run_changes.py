"""Acknowledgements, repair, quarantine, retention, identity."""

import pytest

from runtime_agent import limits
from runtime_agent.core.errors import (
    EventInvalidError,
    HubGenerationChangedError,
    IdentityPinnedError,
    NothingToCopyError,
    RunExistsError,
    RunNotQuarantinedError,
    RuntimeAgentError,
    RunUnknownError,
    TakeInRefusedError,
)
from runtime_agent.core.values import (
    Acknowledgement,
    Appended,
    AppendRequest,
    FetchedEvent,
    LogEvent,
    NewEvent,
    RunKey,
    RunState,
    RuntimeIdentity,
)
from runtime_agent.event_log.sqlite_log import SqliteEventLog
from synchub.contract import chain_hash_after, content_hash

RUN = RunKey("p", "r")
HOUR = limits.ACKNOWLEDGE_BUCKET_NANOS


def fill(log: SqliteEventLog, *payloads: bytes, run: RunKey = RUN, append_id: str = "") -> None:
    request = AppendRequest(run, tuple(NewEvent("line", each) for each in payloads), append_id)
    (outcome,) = log.append([request], now_nanos=1)
    assert isinstance(outcome, Appended)


def state_of(log: SqliteEventLog, run: RunKey = RUN) -> RunState:
    state = log.load_run(run)
    assert state is not None
    return state


def everything(log: SqliteEventLog, run: RunKey = RUN) -> tuple[LogEvent, ...]:
    return log.read_events(run, after_sequence=0, count_max=10_000, bytes_max=2**40)


def quarantine(log: SqliteEventLog, run: RunKey = RUN) -> None:
    log.quarantine(run, reason="SEQUENCE_REUSED", detail="why", sequence=2, now_nanos=5)


def fetched(sequence: int, payload: bytes, *, is_final: bool = False) -> FetchedEvent:
    digest = content_hash("line", 9, is_final=is_final, attributes={}, payload=payload)
    return FetchedEvent(sequence, "line", 9, {}, is_final, payload, digest)


# --- acknowledgements ---------------------------------------------------------------------------------


def test_an_acknowledgement_never_moves_back_and_never_beyond_the_last_event(log: SqliteEventLog) -> None:
    fill(log, b"a", b"b", b"c")
    log.save_hub_generation("g1")
    for told, stored in ((2, 2), (1, 2), (99, 3)):
        log.acknowledge([Acknowledgement(RUN, told)], hub_generation="g1", now_nanos=1)
        assert state_of(log).acknowledged_sequence == stored


def test_an_acknowledgement_under_another_generation_is_refused(log: SqliteEventLog) -> None:
    fill(log, b"a")
    log.save_hub_generation("g1")
    with pytest.raises(HubGenerationChangedError):
        log.acknowledge([Acknowledgement(RUN, 1)], hub_generation="g2", now_nanos=1)
    assert state_of(log).acknowledged_sequence == 0


def test_what_a_hub_lost_is_unacknowledged_again(log: SqliteEventLog) -> None:
    fill(log, b"a", b"b", b"c")
    log.acknowledge([Acknowledgement(RUN, 3)], hub_generation="", now_nanos=1)
    log.reset_acknowledged([Acknowledgement(RUN, 1), Acknowledgement(RunKey("p", "none"), 1)], now_nanos=2)
    assert state_of(log).acknowledged_sequence == 1
    log.drop_payloads(acknowledged_before_nanos=2 * HOUR, limit=100)
    assert [event.payload for event in everything(log)] == [None, b"b", b"c"]


# --- taking in from the hub -----------------------------------------------------------------------------


def test_events_from_the_hub_continue_the_run_and_count_as_acknowledged(log: SqliteEventLog) -> None:
    fill(log, b"a")
    second, third = fetched(2, b"b"), fetched(3, b"c", is_final=True)._replace(payload=None)
    chain = chain_hash_after(state_of(log).chain_hash, [second.content_hash, third.content_hash])
    state = log.take_in(RUN, [second, third], chain_hash=chain, now_nanos=1)
    assert (state.last_sequence, state.acknowledged_sequence, state.is_final) == (3, 3, True)
    assert state.chain_hash == chain
    assert [(event.payload, event.content_hash) for event in everything(log)][1:] == [
        (b"b", second.content_hash),
        (None, third.content_hash),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [fetched(3, b"c")],
        [fetched(1, b"a")],
        [fetched(2, b"b"), fetched(4, b"d")],
        [fetched(2, b"b")._replace(payload=b"forged")],
        [fetched(2, b"b", is_final=True), fetched(3, b"c")],
    ],
)
def test_events_that_do_not_continue_the_run_are_not_taken_in(
    log: SqliteEventLog, events: list[FetchedEvent]
) -> None:
    fill(log, b"a")
    before = state_of(log), everything(log)
    with pytest.raises(TakeInRefusedError):
        log.take_in(RUN, events, chain_hash=None, now_nanos=1)
    assert (state_of(log), everything(log)) == before


def test_events_that_end_in_another_chain_are_not_taken_in(log: SqliteEventLog) -> None:
    fill(log, b"a")
    with pytest.raises(TakeInRefusedError):
        log.take_in(RUN, [fetched(2, b"b")], chain_hash=bytes(32), now_nanos=1)
    assert state_of(log).last_sequence == 1


# --- quarantine -----------------------------------------------------------------------------------------


def test_a_quarantined_run_still_takes_appends_and_keeps_its_first_reason(log: SqliteEventLog) -> None:
    fill(log, b"a")
    quarantine(log)
    log.quarantine(RUN, reason="OTHER", detail="", sequence=1, now_nanos=9)
    fill(log, b"b")
    state = state_of(log)
    assert state.last_sequence == 2
    assert state.quarantine is not None
    assert (state.quarantine.reason, state.quarantine.detail, state.quarantine.sequence) == (
        "SEQUENCE_REUSED",
        "why",
        2,
    )
    assert log.list_quarantined_runs(after=None, limit=10) == (state,)


def test_a_released_run_is_not_quarantined_and_otherwise_the_same(log: SqliteEventLog) -> None:
    fill(log, b"a")
    before = state_of(log)
    quarantine(log)
    assert log.release(RUN) == before


def test_only_a_quarantined_run_can_be_released_or_dropped(log: SqliteEventLog) -> None:
    fill(log, b"a")
    calls = (lambda run: log.release(run), lambda run: log.drop(run))
    for call in calls:
        with pytest.raises(RunNotQuarantinedError):
            call(RUN)
        with pytest.raises(RunUnknownError):
            call(RunKey("p", "none"))
    assert len(everything(log)) == 1


def test_a_copy_has_what_the_hub_lacks_unchanged_behind_a_forked_event(log: SqliteEventLog) -> None:
    last = NewEvent("end", b"", 7, {"k": "v"}, is_final=True)
    fill(log, *(b"%d" % number for number in range(limits.COPY_PAGE_EVENTS // 2)))
    fill(log, *(b"x%d" % number for number in range(1000)))
    log.append([AppendRequest(RUN, (last,))], now_nanos=1)
    log.acknowledge([Acknowledgement(RUN, 2)], hub_generation="", now_nanos=1)
    quarantine(log)
    old = everything(log)
    assert log.release_as(RUN, "copy", now_nanos=42) == len(old) - 2
    new = everything(log, RunKey("p", "copy"))
    forked = new[0]
    assert (forked.event_type, forked.event_time_nanos, forked.payload) == ("forked", 42, b"")
    assert forked.attributes == {"run_id": "r", "sequence": "2"}
    assert [each[1:7] for each in new[1:]] == [each[1:7] for each in old[2:]]
    assert [each.sequence for each in new] == list(range(1, len(new) + 1))
    state = state_of(log, RunKey("p", "copy"))
    assert state.is_final
    assert state.chain_hash == new[-1].chain_hash
    assert new[-1].chain_hash == chain_hash_after(new[0].chain_hash, (each.content_hash for each in new[1:]))
    assert everything(log) == old


def test_a_second_copy_has_only_what_was_appended_since(log: SqliteEventLog) -> None:
    fill(log, b"a", b"b")
    quarantine(log)
    log.release_as(RUN, "copy", now_nanos=1)
    with pytest.raises(NothingToCopyError):
        log.release_as(RUN, "copy2", now_nanos=1)
    fill(log, b"c")
    assert log.release_as(RUN, "copy2", now_nanos=1) == 1
    assert everything(log, RunKey("p", "copy2"))[1].payload == b"c"


@pytest.mark.parametrize(("name", "error"), [("taken", RunExistsError), (" bad", EventInvalidError)])
def test_a_copy_to_a_bad_name_is_refused(
    log: SqliteEventLog, name: str, error: type[RuntimeAgentError]
) -> None:
    fill(log, b"a")
    fill(log, b"b", run=RunKey("p", "taken"))
    quarantine(log)
    before = log.load_totals()
    with pytest.raises(error):
        log.release_as(RUN, name, now_nanos=1)
    assert log.load_totals() == before


def test_a_dropped_run_leaves_nothing_behind(log: SqliteEventLog) -> None:
    fill(log, b"a", append_id="one")
    log.acknowledge([Acknowledgement(RUN, 1)], hub_generation="", now_nanos=1)
    quarantine(log)
    assert log.drop(RUN) == 1
    assert log.load_run(RUN) is None
    connection = log._connected()
    for table in ("run", "event", "append_receipt", "acknowledge_mark", "quarantine"):
        assert connection.execute(f"SELECT count(*) FROM {table}").get == 0
    fill(log, b"other", append_id="one")
    assert state_of(log).last_sequence == 1


# --- retention ------------------------------------------------------------------------------------------


def test_payloads_go_once_they_were_acknowledged_long_ago_and_hashes_stay(log: SqliteEventLog) -> None:
    fill(log, b"a", b"b", b"c", b"d")
    log.acknowledge([Acknowledgement(RUN, 1)], hub_generation="", now_nanos=0)
    log.acknowledge([Acknowledgement(RUN, 3)], hub_generation="", now_nanos=5 * HOUR)
    before = everything(log)
    assert log.drop_payloads(acknowledged_before_nanos=HOUR - 1, limit=100) == 0
    assert log.drop_payloads(acknowledged_before_nanos=HOUR, limit=100) == 1
    assert state_of(log).oldest_payload_sequence == 2
    assert log.drop_payloads(acknowledged_before_nanos=6 * HOUR, limit=100) == 2
    assert everything(log) == tuple(
        event._replace(payload=None) if event.sequence <= 3 else event for event in before
    )
    assert state_of(log).oldest_payload_sequence == 4


def test_retention_does_a_bounded_piece_of_work_a_call(log: SqliteEventLog) -> None:
    fill(log, *(b"x" for _ in range(10)))
    log.acknowledge([Acknowledgement(RUN, 10)], hub_generation="", now_nanos=0)
    counts = [log.drop_payloads(acknowledged_before_nanos=HOUR, limit=4) for _ in range(4)]
    assert counts == [4, 4, 2, 0]
    assert state_of(log).oldest_payload_sequence == 0


# --- identity -------------------------------------------------------------------------------------------


def test_a_log_belongs_to_the_runtime_that_started_it_first(log: SqliteEventLog) -> None:
    assert log.load_identity() is None
    identity = RuntimeIdentity("hp", "rt")
    log.pin_identity(identity)
    log.pin_identity(identity)
    for other in (RuntimeIdentity("hp", "rt2"), RuntimeIdentity("hp2", "rt")):
        with pytest.raises(IdentityPinnedError):
            log.pin_identity(other)
    assert log.load_identity() == identity
