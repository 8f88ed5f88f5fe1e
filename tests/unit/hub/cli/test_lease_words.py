"""What a lease says to people."""

from google.protobuf.timestamp_pb2 import Timestamp

from hub.cli.lease_words import TABLE_COLUMNS, expire_text, holder_text, line_of, state_text, table_row
from synchub.v1.lease_service_pb2 import AbortReason, Lease, LeaseState

NOW = Timestamp(seconds=1_000)
LEASE = Lease(
    resource="garden-db",
    runtime_id="laptop",
    holder_id="worker-1",
    fencing_token=7,
    epoch=2,
    expire_time=Timestamp(seconds=1_009, nanos=500_000_000),
    labels={"pid": "12", "host": "h"},
    state=LeaseState.LEASE_STATE_LIVE,
)


def changed(**changes: object) -> Lease:
    lease = Lease()
    lease.CopyFrom(LEASE)
    lease.MergeFrom(Lease(**changes))  # type: ignore[arg-type]
    return lease


def test_a_row_says_who_holds_what_and_for_how_long() -> None:
    assert dict(zip(TABLE_COLUMNS, table_row(LEASE, hub_now=NOW), strict=True)) == {
        "RESOURCE": "garden-db",
        "STATE": "LIVE",
        "TOKEN": "7",
        "EPOCH": "2",
        "HOLDER": "worker-1",
        "RUNTIME": "laptop",
        "EXPIRES": "in 9.5 s",
        "ABORT": "",
        "LABELS": "host=h, pid=12",
    }


def test_a_lease_that_ended_has_no_time_left() -> None:
    row = table_row(changed(state=LeaseState.LEASE_STATE_EXPIRED), hub_now=Timestamp(seconds=2_000))
    assert row[TABLE_COLUMNS.index("EXPIRES")] == ""


def test_a_maintenance_says_that_it_is_one() -> None:
    ended = changed(is_maintenance=True, state=LeaseState.LEASE_STATE_RELEASED)
    assert state_text(changed(is_maintenance=True)) == "MAINTENANCE"
    assert state_text(ended) == "MAINTENANCE RELEASED"


def test_a_holder_with_a_name_has_both() -> None:
    assert holder_text(changed(holder_display_name="The worker")) == "The worker (worker-1)"
    assert holder_text(changed(holder_display_name="worker-1")) == "worker-1"


def test_an_expiry_is_told_by_the_hubs_clock() -> None:
    assert expire_text(LEASE.expire_time, hub_now=NOW) == "1970-01-01 00:16:49.500 UTC (in 9.5 s)"
    later = Timestamp(seconds=1_012)
    assert expire_text(LEASE.expire_time, hub_now=later) == "1970-01-01 00:16:49.500 UTC (2.5 s ago)"


def test_a_line_has_everything_and_steers_no_terminal() -> None:
    lease = changed(
        is_maintenance=True,
        is_abort_requested=True,
        abort_reason=AbortReason.ABORT_REASON_EXTERNAL,
        labels={"note": "\x1b[31m\n"},
    )
    assert line_of(lease) == (
        "garden-db MAINTENANCE token 7 epoch 2, holder worker-1 of laptop,"
        " until 1970-01-01 00:16:49.500, abort EXTERNAL, host=h, note=\\x1b[31m\\n, pid=12"
    )
