"""What the push session reads of the log, as functions for the log's reading thread."""

from collections.abc import Iterable
from typing import Final

from runtime_agent.core.push_steps import Batch, ReadBatch
from runtime_agent.core.values import RunKey, RunState
from runtime_agent.event_log.contract import EventLogReader
from runtime_agent.hub_client.codec import PushSender, encode_batch
from synchub.contract import chain_hash_after

RUNS_CHANGED_PAGE: Final = 1_000
"""Most runs looked at in one read of what was appended."""


def read_batch(reader: EventLogReader, *, request: ReadBatch, sender: PushSender) -> Batch | None:
    """Read and encode the next batch; None where the log has no such events any more."""
    run = request.run
    events = reader.read_events(
        run,
        after_sequence=request.after_sequence,
        count_max=request.events_max,
        bytes_max=max(1, request.bytes_max - sender.envelope_bytes(run)),
    )
    previous = reader.load_chain_hash(run, request.after_sequence)
    if not events or previous is None or events[0].sequence != request.after_sequence + 1:
        return None
    if chain_hash_after(previous, (events[0].content_hash,)) != events[0].chain_hash:
        return None  # the run was dropped and begun again between the two reads
    return encode_batch(sender, run, events=events, previous_chain_hash=previous)


def list_runs(reader: EventLogReader, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
    """Return a page of all runs."""
    return reader.list_runs(after=after, limit=limit)


def list_unsynced(reader: EventLogReader, *, after: RunKey | None, limit: int) -> tuple[RunState, ...]:
    """Return a page of the runs with unacknowledged events."""
    return reader.list_unsynced_runs(after=after, limit=limit)


def list_changed(reader: EventLogReader, *, after: int) -> tuple[RunState, ...]:
    """Return a page of the runs appended to after a local position."""
    return reader.list_runs_changed_after(after, limit=RUNS_CHANGED_PAGE)


def load_runs(reader: EventLogReader, *, runs: Iterable[RunKey]) -> list[RunState]:
    """Return where these runs stand, without those that the log does not have."""
    states = (reader.load_run(run) for run in runs)
    return [state for state in states if state is not None]
