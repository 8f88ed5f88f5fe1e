"""PruneEvents over the wire: what is old goes, all the rest stays, and nobody is disturbed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from hub.core.limits import Limits
from synchub.v1.hub_service_pb2 import PruneEventsRequest, PruneEventsResponse
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.lease_service_pb2 import ListLeasesRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2 import (
    HeartbeatRequest,
    HeartbeatResponse,
    ListRuntimesRequest,
)
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_event_pb2 import StoredEvent, SyncEvent
from synchub.v1.sync_service_pb2 import ExportEventsRequest, ListRunsRequest, WatchEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.holding import until
from tests.contract.hub_time import HandClock, hub_in_hand
from tests.contract.leasing import acquire, acquire_request, release, state_of
from tests.contract.pushing import events, push
from tests.contract.secured import SecuredHub

WALL_NANOS: Final = 1_800_000_000_000_000_000
DAY: Final = 86_400.0
H: Final = "h"
LAST_HEARTBEAT: Final = 4
"""Which column of a runtime it is."""
LIMITS: Final = Limits(prune_events_max=3, prune_names_max=2, presence_flush_seconds=0.02)


class Hub:
    """A hub whose clocks stand still until a test lets time pass."""

    def __init__(self, folder: Path, channel: grpc.Channel, clocks: tuple[HandClock, HandClock]) -> None:
        self._folder = folder
        self._clocks = clocks
        self.sync = SyncServiceStub(channel)
        self.presence = PresenceServiceStub(channel)
        self.leases = LeaseServiceStub(channel)
        self.hub = HubServiceStub(channel)

    def pass_time(self, seconds: float) -> None:
        for clock in self._clocks:
            clock.pass_time(seconds)

    def prune(self, days: float, project_id: str = "", *, is_dry_run: bool = False) -> PruneEventsResponse:
        """Prune, look at every answer, and return the last one."""
        request = PruneEventsRequest(
            hub_project=H, project_id=project_id, older_than=span(days), is_dry_run=is_dry_run
        )
        *before, last = self.hub.PruneEvents(request, timeout=20)
        assert last.is_done
        assert not any(answer.is_done for answer in before)
        counts = [(answer.considered_count, answer.payload_count) for answer in (*before, last)]
        assert counts == sorted(counts)
        assert all(answer.considered_count <= answer.total_count for answer in (*before, last))
        return last

    def events(self, hub_project: str = H) -> list[StoredEvent]:
        return exported(self.sync, hub_project)

    def with_payload(self, hub_project: str = H) -> list[tuple[str, int]]:
        return [(e.run_id, e.sequence) for e in self.events(hub_project) if not e.payload_dropped]

    def rows(self, *tables: str) -> list[list[tuple[object, ...]]]:
        """All that some tables hold."""
        sql = apsw.Connection(str(self._folder / "hub.db"))
        try:
            return [list(sql.execute(f"SELECT * FROM {table} ORDER BY 1, 2")) for table in tables]
        finally:
            sql.close()

    def stored_bytes(self) -> tuple[int, int]:
        """What the hub counts that it keeps of ``H``, and what it does keep."""
        sql = apsw.Connection(str(self._folder / "hub.db"))
        try:
            (row,) = sql.execute(
                "SELECT stored_bytes, (SELECT sum(128 + coalesce(length(payload), 0)"
                " + coalesce(octet_length(attributes), 0)) FROM event WHERE event.hub_project_key ="
                " hub_project.hub_project_key) FROM hub_project WHERE hub_project = ?",
                (H,),
            )
        finally:
            sql.close()
        return row[0], row[1]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    clock, wall = HandClock(), HandClock(WALL_NANOS)
    with (
        hub_in_hand(tmp_path, clock, limits=LIMITS, wall_nanos=wall) as running,
        grpc.insecure_channel(running.address) as channel,
    ):
        yield Hub(tmp_path, channel, (clock, wall))


def span(days: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(days * DAY * 1e9))
    return duration


def exported(stub: SyncServiceStub, hub_project: str) -> list[StoredEvent]:
    answers = stub.ExportEvents(ExportEventsRequest(hub_project=hub_project), timeout=20)
    return [event for answer in answers for event in answer.events]


def stripped(event: StoredEvent) -> StoredEvent:
    """An event without what a prune may change."""
    bare = StoredEvent()
    bare.CopyFrom(event)
    bare.ClearField("body")
    bare.payload_dropped = False
    return bare


def test_old_payloads_go_and_everything_else_of_an_event_stays(hub: Hub) -> None:
    push(hub.sync, H, run_id="a", batch=events(1, 5))
    push(hub.sync, "other", project_id="o", batch=events(1, 2))
    hub.pass_time(2 * DAY)
    push(hub.sync, H, run_id="a", batch=events(6, 7))
    push(hub.sync, H, run_id="b", batch=events(1, 1))
    before = hub.events()
    runs = hub.sync.ListRuns(ListRunsRequest(hub_project=H)).runs
    done = hub.prune(1)
    sizes = [len(event.payload) for event in before if event.run_id == "a" and event.sequence <= 5]
    assert (done.payload_count, done.payload_bytes) == (5, sum(sizes))
    assert (done.considered_count, done.total_count) == (8, 8)
    assert [*map(stripped, hub.events())] == [*map(stripped, before)]
    assert hub.with_payload() == [("a", 6), ("a", 7), ("b", 1)]
    assert [event.payload for event in hub.events()[:5]] == [b""] * 5
    assert hub.with_payload("other") == [("r", 1), ("r", 2)]
    assert hub.sync.ListRuns(ListRunsRequest(hub_project=H)).runs == runs
    counted, kept = hub.stored_bytes()
    assert counted == kept
    assert hub.prune(1).payload_count == 0


def test_what_was_pruned_and_comes_again_is_a_duplicate_and_is_not_filled_in(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 3))
    hub.pass_time(2 * DAY)
    hub.prune(1)
    before = hub.rows("event", "run", "hub_project")
    again = push(hub.sync, H, batch=events(1, 3))
    assert (again.accepted_count, again.duplicate_count, len(again.conflicts)) == (0, 3, 0)
    changed = push(hub.sync, H, batch=[SyncEvent(sequence=2, event_type="line", text="another")])
    assert [conflict.reason for conflict in changed.conflicts] == [1]
    assert hub.rows("event", "run") == before[:2]
    assert hub.with_payload() == []


def test_what_was_pushed_as_dropped_may_be_filled_in_after_a_prune(hub: Hub) -> None:
    (whole,) = events(1, 1)
    push(hub.sync, "elsewhere", project_id="q", batch=[whole])
    (stored,) = hub.events("elsewhere")
    dropped = SyncEvent(sequence=1, event_type="line", payload_dropped=True, content_hash=stored.content_hash)
    push(hub.sync, H, batch=[dropped])
    hub.pass_time(2 * DAY)
    assert hub.prune(1).payload_count == 0
    assert push(hub.sync, H, batch=[whole]).duplicate_count == 1
    assert hub.with_payload() == [("r", 1)]
    # It was received long ago, so the next prune takes it, and now for good.
    assert hub.prune(1).payload_count == 1
    assert push(hub.sync, H, batch=[whole]).duplicate_count == 1
    assert hub.with_payload() == []
    counted, kept = hub.stored_bytes()
    assert counted == kept


def test_a_dry_run_counts_and_changes_nothing(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 7))
    held = acquire(hub.leases, H)
    release(hub.leases, H, held)
    hub.leases.AcquireLease(acquire_request(H, "kept", request_id="q"))
    heartbeat(hub, "runtime", "one")
    until_written(hub)
    hub.pass_time(2 * DAY)
    tables = ("event", "run", "hub_project", "resource", "tenure", "receipt", "runtime")
    before = hub.rows(*tables)
    counted = hub.prune(1, is_dry_run=True)
    assert hub.rows(*tables) == before
    dropped = hub.prune(1)
    assert counted == dropped
    facts = (counted.payload_count, counted.resource_count, counted.receipt_count, counted.runtime_count)
    # The lease "kept" expired meanwhile; that it did is old only from when it was noted.
    assert facts == (7, 1, 1, 1)


def test_of_one_project_only_its_events_go(hub: Hub) -> None:
    push(hub.sync, H, project_id="p", run_id="a", batch=events(1, 4))
    push(hub.sync, H, project_id="q", run_id="b", batch=events(1, 4))
    push(hub.sync, H, project_id="p", run_id="c", batch=events(1, 4))
    release(hub.leases, H, acquire(hub.leases, H))
    heartbeat(hub, "runtime", "one")
    until_written(hub)
    hub.pass_time(2 * DAY)
    kept = hub.rows("resource", "tenure", "receipt", "runtime")
    done = hub.prune(1, "p")
    assert (done.payload_count, done.considered_count, done.total_count) == (8, 8, 8)
    assert hub.with_payload() == [("b", n) for n in range(1, 5)]
    assert hub.rows("resource", "tenure", "receipt", "runtime") == kept


@pytest.mark.parametrize("project_id", ["nobody", "others"])
def test_a_project_that_is_not_the_hub_projects_is_not_there(hub: Hub, project_id: str) -> None:
    push(hub.sync, H, batch=events(1, 2))
    push(hub.sync, "other", project_id="others", batch=events(1, 2))
    hub.pass_time(2 * DAY)
    before = hub.rows("event", "hub_project")
    refused = refusal_of(lambda: hub.prune(1, project_id))
    assert (refused.reason, refused.metadata["projectId"]) == ("NOT_FOUND", project_id)
    assert hub.rows("event", "hub_project") == before


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (PruneEventsRequest(hub_project=H), "older_than"),
        (PruneEventsRequest(hub_project=H, older_than=Duration()), "older_than"),
        (PruneEventsRequest(hub_project=H, older_than=Duration(nanos=999_999_999)), "older_than"),
        (PruneEventsRequest(hub_project=H, older_than=Duration(seconds=-5)), "older_than"),
        (PruneEventsRequest(hub_project=H, older_than=Duration(seconds=2**62)), "older_than"),
        (PruneEventsRequest(hub_project="", older_than=Duration(seconds=5)), "hub_project"),
        (PruneEventsRequest(hub_project=H, project_id=" p", older_than=Duration(seconds=5)), "project_id"),
    ],
)
def test_a_request_that_does_not_say_what_is_old_is_refused(
    hub: Hub, request_: PruneEventsRequest, field: str
) -> None:
    push(hub.sync, H, batch=events(1, 2))
    hub.pass_time(2 * DAY)
    before = hub.rows("event", "hub_project")
    refused = refusal_of(lambda: list(hub.hub.PruneEvents(request_, timeout=20)))
    assert refused.reason == "INVALID_REQUEST"
    assert [violation.field for violation in refused.violations] == [field]
    assert hub.rows("event", "hub_project") == before


def test_watches_and_exports_go_on_over_the_edge_of_a_prune(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 6))
    hub.pass_time(2 * DAY)
    push(hub.sync, H, batch=events(7, 8))
    call = hub.sync.WatchEvents(WatchEventsRequest(hub_project=H), timeout=20)
    seen = [event.position for event in next(call).events]
    hub.prune(1)
    push(hub.sync, H, batch=events(9, 10))
    generation = ""
    while len(seen) < 10:
        answer = next(call)
        seen += [event.position for event in answer.events]
        generation = answer.hub_generation or generation
    call.cancel()
    assert seen == list(range(1, 11))
    assert hub.with_payload() == [("r", n) for n in (7, 8, 9, 10)]
    # Who resumes before the edge gets every event, those without a payload marked so.
    request = WatchEventsRequest(hub_project=H, hub_generation=generation, after_position=4)
    resumed = next(hub.sync.WatchEvents(request, timeout=20)).events
    assert [(event.sequence, event.payload_dropped) for event in resumed] == [
        (5, True),
        (6, True),
        (7, False),
        (8, False),
        (9, False),
        (10, False),
    ]


def test_leases_that_ended_go_and_tokens_go_on_above_theirs(hub: Hub) -> None:
    for name in ("a", "b", "c"):
        release(hub.leases, H, acquire(hub.leases, H, name))
    highest = acquire(hub.leases, H, "c", secret="c2")
    release(hub.leases, H, highest)
    acquire(hub.leases, "other", "a")
    hub.pass_time(2 * DAY)
    live = acquire(hub.leases, H, "live")
    young = acquire(hub.leases, H, "young")
    release(hub.leases, H, young)
    other = hub.rows("resource")[0][-1]
    assert hub.prune(1).resource_count == 3
    listed = hub.leases.ListLeases(ListLeasesRequest(hub_project=H, include_ended=True)).leases
    assert [lease.resource for lease in listed] == ["live", "young"]
    assert state_of(hub.leases, H, "live").lease.fencing_token == live.lease.fencing_token
    assert hub.rows("resource")[0][-1] == other
    for name in ("a", "c", "new"):
        assert acquire(hub.leases, H, name, secret="z9").lease.fencing_token > highest.lease.fencing_token


def test_receipts_go_by_their_age(hub: Hub) -> None:
    for n in range(5):
        hub.leases.AcquireLease(acquire_request(H, f"old-{n}", request_id=f"old-{n}", ttl=3_600))
    hub.pass_time(1_800)
    young = acquire_request(H, "young", request_id="young", ttl=3_600)
    hub.leases.AcquireLease(young)
    assert hub.prune(1_000 / DAY).receipt_count == 5
    assert hub.leases.AcquireLease(young).replayed
    # Without its receipt a repeated call is looked at anew: the same nonce renews its lease.
    again = hub.leases.AcquireLease(acquire_request(H, "old-1", request_id="old-1", ttl=3_600))
    assert (again.replayed, again.renewed) == (False, True)


def heartbeat(hub: Hub, runtime_id: str, instance_id: str) -> HeartbeatResponse:
    with Conversation(hub.presence.Heartbeat) as stream:
        return stream.ask(HeartbeatRequest(hub_project=H, runtime_id=runtime_id, instance_id=instance_id))


def listed(hub: Hub) -> list[str]:
    runtimes = hub.presence.ListRuntimes(ListRuntimesRequest(hub_project=H)).runtimes
    return [runtime.runtime_id for runtime in runtimes]


def test_runtimes_that_are_silent_for_long_are_not_shown_until_they_are_heard(hub: Hub) -> None:
    heartbeat(hub, "a", "one")
    heartbeat(hub, "a", "two")
    heartbeat(hub, "b", "one")
    until_written(hub)
    hub.pass_time(2 * DAY)
    heartbeat(hub, "c", "one")
    until_written(hub)
    assert hub.prune(1).runtime_count == 2
    assert listed(hub) == ["c"]
    # An instance that had its turn never has it again, however long it was silent.
    assert heartbeat(hub, "a", "one").error.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert listed(hub) == ["c"]
    assert not heartbeat(hub, "a", "two").HasField("error")
    assert not heartbeat(hub, "b", "next").HasField("error")
    assert listed(hub) == ["a", "b", "c"]


def test_who_is_alive_is_shown_however_young_the_rest_may_be_that_goes(hub: Hub) -> None:
    # Nobody is silent before the hub has run for one TTL.
    heartbeat(hub, "early", "one")
    until_written(hub)
    hub.pass_time(20)
    assert hub.prune(1 / DAY).runtime_count == 0
    hub.pass_time(40)
    heartbeat(hub, "alive", "one")
    until_written(hub)
    hub.pass_time(20)
    assert hub.prune(1 / DAY).runtime_count == 1
    assert listed(hub) == ["alive"]


def until_written(hub: Hub) -> None:
    """Wait until the store knows what was heard of every runtime."""
    until(lambda: all(row[LAST_HEARTBEAT] is not None for row in hub.rows("runtime")[0]))


def test_a_caller_that_leaves_ends_the_prune_and_what_was_done_stays_done(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 300))
    hub.pass_time(2 * DAY)
    call = hub.hub.PruneEvents(PruneEventsRequest(hub_project=H, older_than=span(1)), timeout=20)
    seen = [next(call) for _ in range(4)]
    call.cancel()
    gone_count = 300 - len(hub.with_payload())
    assert seen[-1].payload_count == 9
    assert gone_count >= 9
    # Until the hub hears that the caller is gone it may do a step more, and no more than some.
    assert 0 < hub.prune(1).payload_count <= 300 - gone_count
    assert not hub.with_payload()
    counted, kept = hub.stored_bytes()
    assert counted == kept


def test_who_acts_on_some_projects_only_prunes_one_of_them(secured_hub: SecuredHub) -> None:
    runtime = secured_hub.stubs("one/runtime")
    push(runtime.sync, "one", project_id="one-a", batch=events(1, 3))
    push(runtime.sync, "one", project_id="one-z", batch=events(1, 3))
    old = Duration(seconds=3_600)
    operator, reader = secured_hub.stubs("one/prefixed-operator"), secured_hub.stubs("one/reader")
    mine = PruneEventsRequest(project_id="one-a", older_than=old, is_dry_run=True)
    *_, done = operator.hub.PruneEvents(mine, timeout=20)
    assert (done.is_done, done.total_count) == (True, 3)

    def reason(stub: HubServiceStub, request: PruneEventsRequest) -> str:
        refused = refusal_of(lambda: list(stub.PruneEvents(request, timeout=20)))
        assert refused.code is grpc.StatusCode.PERMISSION_DENIED
        return refused.reason

    for project_id in ("", "one-z", "two-a"):
        request = PruneEventsRequest(project_id=project_id, older_than=old)
        assert reason(operator.hub, request) == "PERMISSION_DENIED"
    elsewhere = PruneEventsRequest(hub_project="two", project_id="one-a", older_than=old)
    assert reason(operator.hub, elsewhere) == "IDENTITY_MISMATCH"
    assert reason(reader.hub, mine) == "PERMISSION_DENIED"


def test_nothing_is_as_old_as_the_longest_span(hub: Hub) -> None:
    push(hub.sync, H, batch=events(1, 2))
    longest = PruneEventsRequest(hub_project=H, older_than=Duration(seconds=315_576_000_000))
    *_, done = hub.hub.PruneEvents(longest, timeout=20)
    assert (done.is_done, done.total_count, done.payload_count) == (True, 2, 0)
