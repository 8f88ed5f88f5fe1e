"""Reads: bounded pages, chain hashes, the order over all runs."""

from runtime_agent import limits
from runtime_agent.core.values import Acknowledgement, AppendRequest, NewEvent, RunKey, RuntimeIdentity
from runtime_agent.event_log.sqlite_log import SqliteEventLog
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from synchub.contract import chain_hash_after, chain_hash_at_start

RUN, OTHER = RunKey("p", "r"), RunKey("p", "s")


def fill(log: SqliteEventLog, run: RunKey, *payloads: bytes) -> None:
    log.append([AppendRequest(run, tuple(NewEvent("line", each) for each in payloads))], now_nanos=1)


def test_a_page_ends_before_the_byte_limit_and_has_one_event_at_least(log: SqliteEventLog) -> None:
    fill(log, RUN, bytes(1000), bytes(1000), bytes(5000))
    size = 1000 + len("line") + limits.EVENT_OVERHEAD_BYTES

    def sequences(after: int, bytes_max: int) -> list[int]:
        found = log.read_events(RUN, after_sequence=after, count_max=10, bytes_max=bytes_max)
        return [event.sequence for event in found]

    assert sequences(0, 2 * size) == [1, 2]
    assert sequences(0, 2 * size - 1) == [1]
    assert sequences(2, 1) == [3]
    assert sequences(3, 1) == []


def test_a_page_has_the_count_that_was_asked_for(log: SqliteEventLog) -> None:
    fill(log, RUN, *(b"x" for _ in range(10)))
    found = log.read_events(RUN, after_sequence=3, count_max=4, bytes_max=2**30)
    assert [event.sequence for event in found] == [4, 5, 6, 7]


def test_the_chain_hash_is_known_at_every_sequence(log: SqliteEventLog) -> None:
    fill(log, RUN, b"a", b"b")
    hashes = log.read_content_hashes(RUN, after_sequence=0, limit=10)
    start = chain_hash_at_start("p", "r")
    assert [log.load_chain_hash(RUN, sequence) for sequence in range(4)] == [
        start,
        chain_hash_after(start, hashes[:1]),
        chain_hash_after(start, hashes),
        None,
    ]


def test_a_tail_has_all_runs_in_the_order_of_appends(log: SqliteEventLog) -> None:
    fill(log, RUN, b"a")
    fill(log, OTHER, b"b")
    fill(log, RUN, b"c")

    def payloads(after: int, run_id: str = "") -> list[bytes | None]:
        found = log.tail_events(
            after_local_position=after,
            project_id="p" if run_id else "",
            run_id=run_id,
            count_max=10,
            bytes_max=2**30,
        )
        return [each.event.payload for each in found]

    assert payloads(0) == [b"a", b"b", b"c"]
    assert payloads(1) == [b"b", b"c"]
    assert payloads(0, "r") == [b"a", b"c"]


def test_a_local_position_is_never_given_again_after_a_drop(log: SqliteEventLog) -> None:
    fill(log, RUN, b"a", b"b")
    log.quarantine(RUN, reason="X", detail="", sequence=0, now_nanos=1)
    log.drop(RUN)
    assert log.load_head_local_position() == 2
    fill(log, OTHER, b"c")
    assert log.read_events(OTHER, after_sequence=0, count_max=1, bytes_max=1)[0].local_position == 3


def test_runs_with_new_events_are_told_since_a_local_position(log: SqliteEventLog) -> None:
    fill(log, RUN, b"a")
    fill(log, OTHER, b"b")
    assert [each.run for each in log.list_runs_changed_after(0, limit=10)] == [RUN, OTHER]
    fill(log, RUN, b"c")
    assert [each.run for each in log.list_runs_changed_after(2, limit=10)] == [RUN]
    assert log.list_runs_changed_after(3, limit=10) == ()


def test_runs_are_listed_in_pages_by_their_keys(log: SqliteEventLog) -> None:
    keys = [RunKey(project, run) for project in ("a", "b") for run in ("x", "y", "é")]
    for key in reversed(keys):
        fill(log, key, b"1")
    first = log.list_runs(after=None, limit=4)
    rest = log.list_runs(after=first[-1].run, limit=4)
    assert [each.run for each in (*first, *rest)] == keys


def test_runs_in_step_are_not_listed_as_unsynced(log: SqliteEventLog) -> None:
    fill(log, RUN, b"a")
    fill(log, OTHER, b"b")
    log.acknowledge([Acknowledgement(RUN, 1)], hub_generation="", now_nanos=1)
    assert [each.run for each in log.list_unsynced_runs(after=None, limit=10)] == [OTHER]


def test_the_totals_count_runs_events_and_what_no_hub_has(log: SqliteEventLog) -> None:
    fill(log, RUN, b"a", b"b")
    fill(log, OTHER, b"c")
    log.acknowledge([Acknowledgement(RUN, 2)], hub_generation="", now_nanos=77)
    log.quarantine(OTHER, reason="X", detail="", sequence=0, now_nanos=1)
    totals = log.load_totals()
    assert (totals.run_count, totals.event_count, totals.unsynced_event_count) == (2, 3, 1)
    assert (totals.quarantined_run_count, totals.last_acknowledge_time_nanos) == (1, 77)
    assert totals.log_bytes > 0


def test_a_reader_of_its_own_sees_what_the_writer_committed(log: SqliteEventLog, tmp_path: object) -> None:
    reader = SqliteEventLogReader.open(str(tmp_path))
    try:
        fill(log, RUN, b"a")
        log.pin_identity(RuntimeIdentity("hp", "rt"))
        assert reader.load_run(RUN) == log.load_run(RUN)
        assert reader.load_identity() == RuntimeIdentity("hp", "rt")
    finally:
        reader.close()
