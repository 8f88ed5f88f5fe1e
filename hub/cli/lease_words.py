"""What a lease says to people: one place for its words, used by every ``leases`` command."""

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from hub.cli.hub_calls import bare_enum_name, moment_text
from hub.cli.output import printable
from hub.cli.spans import span_text
from synchub.v1.lease_service_pb2 import AbortReason, Lease, LeaseState

TABLE_COLUMNS: Final = (
    *("RESOURCE", "STATE", "TOKEN", "EPOCH", "HOLDER", "RUNTIME", "EXPIRES", "ABORT", "LABELS"),
)


def table_row(lease: Lease, *, hub_now: Timestamp) -> list[str]:
    """Return the cells of a lease under ``TABLE_COLUMNS``: of a holder with a name, only the name."""
    is_running = lease.state in (LeaseState.LEASE_STATE_LIVE, LeaseState.LEASE_STATE_UNCLAIMED)
    return [
        lease.resource,
        state_text(lease),
        str(lease.fencing_token),
        str(lease.epoch),
        lease.holder_display_name or lease.holder_id,
        lease.runtime_id,
        f"in {span_text(seconds_between(hub_now, lease.expire_time))}" if is_running else "",
        abort_text(lease),
        labels_text(lease),
    ]


def state_text(lease: Lease) -> str:
    """Return where a tenure stands, in the words of the wire; a maintenance says that it is one."""
    name = bare_enum_name(LeaseState.DESCRIPTOR, lease.state)
    if not lease.is_maintenance:
        return name
    return "MAINTENANCE" if lease.state == LeaseState.LEASE_STATE_LIVE else f"MAINTENANCE {name}"


def holder_text(lease: Lease) -> str:
    """Return the holder as people know it."""
    if lease.holder_display_name in ("", lease.holder_id):
        return lease.holder_id
    return f"{lease.holder_display_name} ({lease.holder_id})"


def abort_text(lease: Lease) -> str:
    """Return why the holder is asked to stop; empty where it is not."""
    if not lease.is_abort_requested:
        return ""
    return bare_enum_name(AbortReason.DESCRIPTOR, lease.abort_reason)


def labels_text(lease: Lease) -> str:
    """Return the labels, sorted by their keys."""
    return ", ".join(f"{key}={value}" for key, value in sorted(lease.labels.items()))


def expire_text(expire_time: Timestamp, *, hub_now: Timestamp) -> str:
    """Return when something ends by itself and how far away that is, by the hub's clock."""
    seconds = seconds_between(hub_now, expire_time)
    distance = f"in {span_text(seconds)}" if seconds > 0 else f"{span_text(-seconds)} ago"
    return f"{moment_text(expire_time)} UTC ({distance})"


def seconds_between(begin: Timestamp, end: Timestamp) -> float:
    """Return the seconds from one moment to another; negative where the second one is earlier."""
    return (end.ToNanoseconds() - begin.ToNanoseconds()) / 1e9


def line_of(lease: Lease) -> str:
    """Return a lease as one line that steers no terminal."""
    words = [
        f"{lease.resource} {state_text(lease)} token {lease.fencing_token} epoch {lease.epoch}",
        f"holder {holder_text(lease)} of {lease.runtime_id}, until {moment_text(lease.expire_time)}",
        f"abort {abort_text(lease)}" if lease.is_abort_requested else "",
        labels_text(lease),
    ]
    return printable(", ".join(filter(None, words)))
