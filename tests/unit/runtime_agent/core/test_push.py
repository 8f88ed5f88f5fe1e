"""What to push next, and what an answer means, one rule at a time."""

from dataclasses import replace

from runtime_agent.core.push import REASON_HISTORY_DIVERGED, PushCore
from runtime_agent.core.push_steps import (
    Acknowledge,
    Batch,
    Conflict,
    EndStream,
    Output,
    PushAnswer,
    PushBounds,
    QuarantineRun,
    ReadBatch,
    ReconcileRun,
    RescanRuns,
    ResumeProject,
    SendBatch,
)
from runtime_agent.core.values import RunKey

BOUNDS = PushBounds(
    in_flight_max=4,
    read_ahead_max=2,
    batch_events_max=10,
    batch_bytes_max=1_000,
    runs_tracked_max=3,
    held_projects_max=2,
    project_hold_seconds=60.0,
    answer_seconds_max=30.0,
    first_answer_seconds_max=10.0,
    retry_delay_seconds_max=60.0,
    setback_seconds_first=0.5,
    setback_seconds_max=30.0,
)
RUN = RunKey("p", "r")
OTHER = RunKey("p", "s")


def chain(run: RunKey, sequence: int) -> bytes:
    return f"{run.run_id}{sequence}".encode()


class Rig:
    """A core on an open stream, whose reads are answered at once from logs that have every event."""

    def __init__(self, bounds: PushBounds = BOUNDS) -> None:
        self.now = 100.0
        self.core = PushCore(bounds, chance=lambda: 1.0)
        self.sent: list[Batch] = []
        self.reads: list[ReadBatch] = []
        self.last_sequences: dict[RunKey, int] = {}
        assert self.core.stream_opened(self.now) == []

    def track(self, run: RunKey, acknowledged: int, last: int) -> list[Output]:
        self.last_sequences[run] = last
        return self.settle(
            self.core.track(run, acknowledged_sequence=acknowledged, last_sequence=last, now=self.now)
        )

    def advance(self, run: RunKey, last: int, acknowledged: int = 0) -> list[Output]:
        self.last_sequences[run] = last
        return self.settle(
            self.core.log_advanced(run, acknowledged_sequence=acknowledged, last_sequence=last, now=self.now)
        )

    def settle(self, outputs: list[Output]) -> list[Output]:
        """Answer reads until there are none, keep what is sent, and return the rest."""
        rest: list[Output] = []
        waiting = list(outputs)
        while waiting:
            output = waiting.pop(0)
            match output:
                case ReadBatch(ticket, run, after_sequence, events_max, _):
                    self.reads.append(output)
                    last = min(after_sequence + events_max, self.last_sequences[run])
                    batch = batch_of(run, after_sequence + 1, last)
                    waiting.extend(self.core.batch_read(ticket, batch, now=self.now))
                case SendBatch(batch):
                    self.sent.append(batch)
                case _:
                    rest.append(output)
        return rest

    def answer(self, answer: PushAnswer) -> list[Output]:
        return self.settle(self.core.answer_received(answer, now=self.now))

    def sent_ranges(self) -> list[tuple[str, int, int]]:
        return [(each.run.run_id, each.first_sequence, each.last_sequence) for each in self.sent]


def batch_of(run: RunKey, first: int, last: int) -> Batch:
    return Batch(run, first, last, chain(run, first - 1), chain(run, last), b"x" * (last - first + 1))


def stored(batch: Batch) -> PushAnswer:
    return PushAnswer(batch.run, batch.last_sequence, batch.chain_hash, batch.event_count, 0)


def test_one_new_event_goes_at_once() -> None:
    rig = Rig()
    rig.advance(RUN, 1)
    assert rig.sent_ranges() == [("r", 1, 1)]


def test_batches_grow_while_others_are_in_flight() -> None:
    rig = Rig()
    for sequence in range(1, 30):
        rig.advance(RUN, sequence)
    assert rig.sent_ranges() == [("r", n, n) for n in range(1, 5)]
    rig.answer(stored(rig.sent[0]))
    rig.answer(stored(rig.sent[1]))
    rig.answer(stored(rig.sent[2]))
    assert rig.sent_ranges()[4:] == [("r", 5, 5), ("r", 6, 6), ("r", 7, 16)]


def test_batches_in_flight_of_a_run_chain_their_hashes() -> None:
    rig = Rig()
    rig.track(RUN, 0, 40)
    assert rig.sent_ranges() == [("r", 1, 10), ("r", 11, 20), ("r", 21, 30), ("r", 31, 40)]
    assert [each.previous_chain_hash for each in rig.sent] == [b"r0", b"r10", b"r20", b"r30"]


def test_a_large_run_does_not_starve_a_small_one() -> None:
    rig = Rig()
    rig.track(RUN, 0, 10_000)
    rig.track(OTHER, 0, 1)
    for answered in range(4):
        rig.answer(stored(rig.sent[answered]))
    assert ("s", 1, 1) in rig.sent_ranges()


def test_what_is_read_or_in_flight_is_bounded() -> None:
    rig = Rig()
    rig.track(RUN, 0, 10_000)
    assert (len(rig.sent), len(rig.reads)) == (4, 6)


def test_an_answer_acknowledges_its_batch() -> None:
    rig = Rig()
    rig.track(RUN, 3, 7)
    assert rig.answer(stored(rig.sent[0])) == [Acknowledge(RUN, 7)]
    assert rig.core.is_idle


def test_duplicates_acknowledge_as_well_and_the_cursor_may_be_beyond_the_batch() -> None:
    rig = Rig()
    rig.track(RUN, 0, 20)
    first, second = rig.sent
    answer = PushAnswer(RUN, 20, second.chain_hash, 0, 10)
    assert rig.answer(answer) == [Acknowledge(RUN, first.last_sequence)]


def test_a_conflict_quarantines_its_run_and_the_others_go_on() -> None:
    rig = Rig()
    rig.track(RUN, 0, 20)
    rig.track(OTHER, 0, 1)
    conflict = PushAnswer(RUN, 4, b"hub", 0, 4, (Conflict(5, "SEQUENCE_REUSED"), Conflict(6, "RUN_COMPLETE")))
    (quarantine,) = rig.answer(conflict)
    assert isinstance(quarantine, QuarantineRun)
    assert (quarantine.run, quarantine.reason, quarantine.sequence) == (RUN, "SEQUENCE_REUSED", 5)
    assert (quarantine.hub_cursor, quarantine.hub_chain_hash) == (4, b"hub")
    # The second batch was in flight: the hub says go back, which means nothing for a quarantined run.
    assert rig.answer(PushAnswer(RUN, 4, b"hub", 0, 0, go_back=True)) == []
    assert rig.answer(stored(rig.sent[2])) == [Acknowledge(OTHER, 1)]
    assert rig.core.is_idle


def test_another_chain_hash_at_the_same_sequence_quarantines_the_run() -> None:
    rig = Rig()
    rig.track(RUN, 0, 5)
    (quarantine,) = rig.answer(replace(stored(rig.sent[0]), chain_hash=b"other"))
    assert isinstance(quarantine, QuarantineRun)
    assert (quarantine.reason, quarantine.sequence) == (REASON_HISTORY_DIVERGED, 5)


def test_another_chain_hash_where_a_later_batch_ends_quarantines_the_run() -> None:
    rig = Rig()
    rig.track(RUN, 0, 20)
    (quarantine,) = rig.answer(PushAnswer(RUN, 20, b"other", 0, 10))
    assert isinstance(quarantine, QuarantineRun)


def test_go_back_reconciles_the_run_at_once_without_a_quarantine() -> None:
    rig = Rig()
    rig.track(RUN, 10, 50)
    go_back = PushAnswer(RUN, 5, b"r5", 0, 0, go_back=True)
    assert rig.answer(go_back) == [ReconcileRun(RUN, rig.now)]
    assert [rig.answer(go_back) for _ in rig.sent[1:]] == [[], [], []]
    sent_before = len(rig.sent)
    rig.track(RUN, 5, 50)
    assert rig.sent_ranges()[sent_before] == ("r", 6, 15)


def test_going_back_again_and_again_waits_longer_each_time() -> None:
    rig = Rig()
    waits: list[float] = []
    for _ in range(9):
        rig.track(RUN, 10, 11)
        (output,) = rig.answer(PushAnswer(RUN, 5, b"r5", 0, 0, go_back=True))
        assert isinstance(output, ReconcileRun)
        waits.append(output.not_before - rig.now)
    assert waits[0] == 0.0
    assert waits[1:] == sorted(waits[1:])
    assert waits[1] >= 0.5
    assert waits[-1] == 30.0


def test_an_acknowledgement_forgets_earlier_setbacks() -> None:
    rig = Rig()
    for _ in range(5):
        rig.track(RUN, 10, 11)
        rig.answer(PushAnswer(RUN, 5, b"r5", 0, 0, go_back=True))
    rig.track(RUN, 10, 11)
    rig.answer(stored(rig.sent[-1]))
    rig.track(RUN, 11, 12)
    assert rig.answer(PushAnswer(RUN, 5, b"r5", 0, 0, go_back=True)) == [ReconcileRun(RUN, rig.now)]


def test_a_hub_that_has_more_than_the_log_is_reconciled() -> None:
    rig = Rig()
    rig.track(RUN, 0, 5)
    assert rig.answer(PushAnswer(RUN, 9, b"hub", 0, 5)) == [Acknowledge(RUN, 5), ReconcileRun(RUN, rig.now)]


def test_an_answer_that_does_not_add_up_or_fit_ends_the_stream() -> None:
    rig = Rig()
    rig.track(RUN, 0, 5)
    (end,) = rig.answer(PushAnswer(RUN, 5, b"r5", 4, 0))
    assert isinstance(end, EndStream)
    rig = Rig()
    rig.track(RUN, 0, 5)
    (end,) = rig.answer(PushAnswer(OTHER, 5, b"s5", 5, 0))
    assert isinstance(end, EndStream)
    (end,) = Rig().answer(PushAnswer(OTHER, 5, b"s5", 5, 0))
    assert isinstance(end, EndStream)


def test_retry_delay_pauses_sending_and_the_batch_counts() -> None:
    rig = Rig()
    rig.track(RUN, 0, 100)
    assert rig.answer(replace(stored(rig.sent[0]), retry_delay_seconds=2.0)) == [Acknowledge(RUN, 10)]
    assert len(rig.sent) == 4
    assert rig.core.next_wake_time() == rig.now + 2.0
    rig.now += 1.9
    assert rig.settle(rig.core.tick(rig.now)) == []
    assert len(rig.sent) == 4
    rig.now += 0.1
    rig.settle(rig.core.tick(rig.now))
    assert len(rig.sent) == 5


def test_a_retry_delay_is_bounded() -> None:
    rig = Rig()
    rig.track(RUN, 0, 100)
    rig.answer(replace(stored(rig.sent[0]), retry_delay_seconds=1e9))
    rig.answer(stored(rig.sent[1]))
    rig.answer(stored(rig.sent[2]))
    rig.answer(stored(rig.sent[3]))
    assert rig.core.next_wake_time() == rig.now + 60.0


def test_the_longest_pause_that_was_asked_for_counts() -> None:
    rig = Rig()
    rig.track(RUN, 0, 100)
    rig.answer(replace(stored(rig.sent[0]), retry_delay_seconds=5.0))
    rig.now += 1.0
    rig.answer(replace(stored(rig.sent[1]), retry_delay_seconds=1.0))
    rig.answer(stored(rig.sent[2]))
    rig.now += 3.9
    assert rig.settle(rig.core.tick(rig.now)) == []
    assert len(rig.sent) == 4
    rig.now += 0.1
    rig.settle(rig.core.tick(rig.now))
    assert len(rig.sent) == 7


def test_a_hub_that_takes_no_batch_while_it_asks_to_wait_is_not_given_up() -> None:
    rig = Rig()
    rig.track(RUN, 0, 100)
    rig.answer(replace(stored(rig.sent[0]), retry_delay_seconds=50.0))
    rig.now += 50.0 + BOUNDS.answer_seconds_max - 0.1
    assert rig.settle(rig.core.tick(rig.now)) == []
    rig.now += 0.2
    assert rig.core.tick(rig.now) == [EndStream("the hub does not answer")]


def test_a_pause_ends_with_its_stream() -> None:
    rig = Rig()
    rig.track(RUN, 0, 100)
    rig.answer(replace(stored(rig.sent[0]), retry_delay_seconds=50.0))
    rig.core.stream_lost()
    rig.core.stream_opened(rig.now)
    sent_before = len(rig.sent)
    rig.track(RUN, 10, 100)
    assert rig.sent_ranges()[sent_before] == ("r", 11, 20)


def test_projects_that_wait_are_told_with_until_when() -> None:
    rig = Rig()
    rig.core.hold_project("q", now=rig.now)
    assert rig.core.held_projects() == {"q": rig.now + 60.0}
    rig.core.stream_lost()
    assert rig.core.held_projects() == {"q": rig.now + 60.0}
    rig.core.stream_opened(rig.now)
    rig.now += 60.0
    assert rig.core.tick(rig.now) == [ResumeProject("q")]
    assert rig.core.held_projects() == {}


def test_the_first_answer_may_take_less_long_than_later_ones() -> None:
    rig = Rig()
    rig.track(RUN, 0, 20)
    assert rig.core.next_wake_time() == rig.now + 10.0
    rig.answer(stored(rig.sent[0]))
    assert rig.core.next_wake_time() == rig.now + 30.0
    rig.now += 30.0
    assert rig.core.tick(rig.now) == [EndStream("the hub does not answer")]


def test_a_lost_stream_leaves_nothing_that_was_unanswered() -> None:
    rig = Rig()
    rig.track(RUN, 0, 50)
    rig.core.stream_lost()
    assert rig.core.is_idle
    rig.core.stream_opened(rig.now)
    sent_before = len(rig.sent)
    rig.track(RUN, 20, 50)
    assert rig.sent_ranges()[sent_before:] == [("r", 21, 30), ("r", 31, 40), ("r", 41, 50)]


def test_a_batch_that_was_read_for_an_earlier_stream_is_not_sent() -> None:
    core = PushCore(BOUNDS, chance=lambda: 1.0)
    core.stream_opened(0.0)
    (read,) = core.track(RUN, acknowledged_sequence=0, last_sequence=5, now=0.0)
    assert isinstance(read, ReadBatch)
    core.stream_lost()
    core.stream_opened(1.0)
    assert core.batch_read(read.ticket, batch_of(RUN, 1, 5), now=1.0) == []


def test_a_refused_batch_quarantines_the_run_that_the_hub_names() -> None:
    rig = Rig()
    rig.track(OTHER, 0, 1)
    rig.track(RUN, 7, 9)
    assert rig.core.batch_refused(RUN, reason="INVALID_REQUEST", detail="odd") == [
        QuarantineRun(RUN, "INVALID_REQUEST", "odd", 8)
    ]


def test_a_refused_batch_without_a_name_is_the_oldest_unanswered_one() -> None:
    rig = Rig()
    rig.track(OTHER, 0, 1)
    rig.track(RUN, 7, 9)
    (quarantine,) = rig.core.batch_refused(None, reason="INVALID_REQUEST", detail="odd")
    assert isinstance(quarantine, QuarantineRun)
    assert quarantine.run == OTHER
    assert Rig().core.batch_refused(None, reason="INVALID_REQUEST", detail="odd") == []


def test_a_batch_that_is_too_large_is_sent_again_in_smaller_ones_one_at_a_time() -> None:
    rig = Rig()
    rig.track(RUN, 0, 40)
    assert rig.core.batch_too_large(None, reason="", detail="too large") == []
    rig.core.stream_lost()
    rig.core.stream_opened(rig.now)
    reads_before, sent_before = len(rig.reads), len(rig.sent)
    rig.track(RUN, 0, 40)
    assert rig.reads[reads_before].bytes_max == 5
    assert len(rig.sent) - sent_before == 1


def test_a_single_event_that_is_too_large_quarantines_its_run() -> None:
    rig = Rig()
    rig.track(RUN, 0, 1)
    (quarantine,) = rig.core.batch_too_large(None, reason="LIMIT_REACHED", detail="too large")
    assert isinstance(quarantine, QuarantineRun)
    assert (quarantine.run, quarantine.sequence) == (RUN, 1)


def test_a_project_that_is_not_allowed_waits_while_others_go_on() -> None:
    rig = Rig()
    elsewhere = RunKey("q", "r")
    rig.track(RUN, 0, 5)
    rig.core.hold_project("p", now=rig.now)
    assert rig.track(RUN, 0, 5) == []
    assert rig.advance(OTHER, 5) == []
    rig.track(elsewhere, 0, 5)
    assert {each.run for each in rig.sent} == {RUN, elsewhere}
    rig.now += 60.0
    assert ResumeProject("p") in rig.core.tick(rig.now)
    assert not rig.core.is_held("p")


def test_held_projects_are_bounded() -> None:
    rig = Rig()
    for project_id in "abc":
        rig.core.hold_project(project_id, now=rig.now)
    assert [rig.core.is_held(each) for each in "abc"] == [False, True, True]


def test_runs_beyond_the_bound_are_asked_for_again_when_there_is_room() -> None:
    rig = Rig()
    for n in range(4):
        rig.track(RunKey("p", f"r{n}"), 0, 1)
    assert not rig.core.has_room
    assert not rig.core.is_idle
    outputs = [each for batch in list(rig.sent) for each in rig.answer(stored(batch))]
    assert outputs.count(RescanRuns()) == 1


def test_a_run_whose_events_are_gone_is_forgotten() -> None:
    rig = Rig()
    (read,) = rig.core.track(RUN, acknowledged_sequence=0, last_sequence=5, now=rig.now)
    assert isinstance(read, ReadBatch)
    assert rig.core.batch_read(read.ticket, None, now=rig.now) == []
    assert rig.core.is_idle


def test_the_hubs_limits_bound_the_next_batches() -> None:
    rig = Rig()
    rig.core.set_batch_limits(events_max=3, bytes_max=50)
    rig.track(RUN, 0, 5)
    assert rig.sent_ranges() == [("r", 1, 3), ("r", 4, 5)]
    assert {each.bytes_max for each in rig.reads} == {50}
