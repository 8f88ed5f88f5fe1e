"""One transaction of appends: decides each request, builds the rows, writes them at once.

The bulk path of the log: everything per event is in one loop, and the rows go to SQLite in one
``executemany``. A refused request leaves no trace in the group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias, cast

import apsw

from runtime_agent.core.errors import (
    AppendIdReusedError,
    LogFullError,
    RunFinalError,
    SequenceExhaustedError,
    WrongSequenceError,
)
from runtime_agent.core.trace import TRACEPARENT
from runtime_agent.core.values import Appended, AppendRequest, HubLimits, RunKey
from runtime_agent.event_log.checks import request_fault
from runtime_agent.event_log.contract import AppendOutcome
from runtime_agent.event_log.rows import attributes_to_text
from runtime_agent.event_log.statements import statements
from synchub.contract import SEQUENCE_MAX, chain_hash_at_start, content_hash

InsertRow: TypeAlias = tuple[int, int, int, str, int | None, str | None, bool, bytes, bytes, bytes | None]
"""Local position, run number, sequence, type, time, attributes, final, content and chain hash, payload."""

_ROW_OVERHEAD_BYTES = 256  # what an event takes on disk besides its content: hashes, keys, index


@dataclass(frozen=True, slots=True)
class RunHead:
    """Where the next append to a run goes on."""

    run_number: int
    last_sequence: int
    chain_hash: bytes
    is_final: bool


class AppendGroup:
    """Collects the requests of one transaction; ``write`` inserts everything that was accepted."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        heads: Mapping[RunKey, RunHead],
        hub_limits: HubLimits,
        head_local_position: int,
        log_bytes: int,
        log_bytes_max: int,
    ) -> None:
        self._connection = connection
        self._known_heads = heads
        self._hub_limits = hub_limits
        self._local_position = head_local_position
        self._log_bytes = log_bytes
        self._log_bytes_max = log_bytes_max
        self._rows: list[InsertRow] = []
        self._fresh_receipts: dict[tuple[int, str], tuple[int, int, bytes]] = {}
        self._positions: dict[RunKey, int] = {}
        self._sql = statements()
        self.heads: dict[RunKey, RunHead] = {}
        """The heads of the runs that this group moved or looked up; true once it is committed."""

    def append(self, request: AppendRequest, *, now_nanos: int) -> AppendOutcome:
        """Decide one request; what is accepted is written by ``write``."""
        fault = request_fault(request, self._hub_limits)
        if fault is not None:
            return fault
        head = self._head(request.run)
        request_hash = _request_hash(request) if request.append_id else b""
        if request.append_id and head is not None:
            receipt = self._receipt(head.run_number, request.append_id)
            if receipt is not None:
                first, last, known_hash = receipt
                if known_hash != request_hash:
                    return AppendIdReusedError(request.append_id, first, last)
                return Appended(first, last, is_repeat=True)
        last_sequence = 0 if head is None else head.last_sequence
        if head is not None and head.is_final:
            return RunFinalError(request.run.run_id, last_sequence)
        if request.expected_sequence and request.expected_sequence != last_sequence + 1:
            return WrongSequenceError(request.expected_sequence, last_sequence + 1)
        count = len(request.events)
        if last_sequence > SEQUENCE_MAX - count:
            return SequenceExhaustedError("sequence of the run")
        if self._local_position > SEQUENCE_MAX - count:
            return SequenceExhaustedError("local position")
        added_bytes = sum(len(event.payload) for event in request.events) + count * _ROW_OVERHEAD_BYTES
        if self._log_bytes + added_bytes > self._log_bytes_max:
            return LogFullError(self._log_bytes, self._log_bytes_max)
        self._log_bytes += added_bytes
        if head is None:
            head = self._new_run(request.run)
        self._add_rows(request, head, now_nanos=now_nanos)
        appended = Appended(last_sequence + 1, last_sequence + count)
        if request.append_id:
            self._fresh_receipts[(head.run_number, request.append_id)] = (
                appended.first_sequence,
                appended.last_sequence,
                request_hash,
            )
        return appended

    def write(self) -> None:
        """Insert everything that was accepted, and move the heads.

        The head of the log's order is written in any case, so that the COMMIT reaches stable
        storage also where a repeat is all that is answered.
        """
        connection, sql = self._connection, self._sql
        connection.executemany(sql["insert_event"], self._rows)
        connection.executemany(
            sql["save_head"],
            [
                (head.run_number, head.last_sequence, head.chain_hash, head.is_final, self._positions[run])
                for run, head in self.heads.items()
                if run in self._positions
            ],
        )
        connection.executemany(
            sql["insert_receipt"],
            [
                (run_number, append_id, first, last, request_hash)
                for (run_number, append_id), (first, last, request_hash) in self._fresh_receipts.items()
            ],
        )
        connection.execute(sql["save_head_local_position"], (self._local_position,))

    def _add_rows(self, request: AppendRequest, head: RunHead, *, now_nanos: int) -> None:
        run_number, sequence, chain_hash = head.run_number, head.last_sequence, head.chain_hash
        position = self._local_position
        stamp = now_nanos if request.stamp_time else None
        add = self._rows.append
        is_final = False
        for event_type, payload, given_nanos, attributes, is_final in request.events:
            time_nanos = stamp if given_nanos is None else given_nanos
            digest = content_hash(
                event_type, time_nanos, is_final=is_final, attributes=attributes, payload=payload
            )
            chain_hash = sha256(chain_hash + digest).digest()
            sequence += 1
            position += 1
            text = attributes_to_text(attributes) if attributes else None
            add(
                (position, run_number, sequence, event_type, time_nanos, text, is_final, digest, chain_hash,
                 payload)
            )  # fmt: skip
        self._local_position = position
        self.heads[request.run] = RunHead(run_number, sequence, chain_hash, is_final)
        self._positions[request.run] = position

    def _head(self, run: RunKey) -> RunHead | None:
        head = self.heads.get(run) or self._known_heads.get(run)
        if head is None:
            row = cast(
                tuple[int, int, bytes, int, int, int] | None,
                self._connection.execute(self._sql["load_head"], (run.project_id, run.run_id)).fetchone(),
            )
            if row is None:
                return None
            head = RunHead(row[0], row[1], row[2], row[3] == 1)
            self.heads[run] = head
        return head

    def _new_run(self, run: RunKey) -> RunHead:
        chain_hash = chain_hash_at_start(run.project_id, run.run_id)
        run_number = cast(
            int,
            self._connection.execute(self._sql["insert_run"], (run.project_id, run.run_id, chain_hash)).get,
        )
        return RunHead(run_number, 0, chain_hash, False)

    def _receipt(self, run_number: int, append_id: str) -> tuple[int, int, bytes] | None:
        fresh = self._fresh_receipts.get((run_number, append_id))
        if fresh is not None:
            return fresh
        return cast(
            tuple[int, int, bytes] | None,
            self._connection.execute(self._sql["load_receipt"], (run_number, append_id)).fetchone(),
        )


def _request_hash(request: AppendRequest) -> bytes:
    """Hash the content as it was given: a repeat is stamped with another time, may be of another trace, and
    is the same.
    """
    digest = sha256()
    for event in request.events:
        attributes = event.attributes
        if TRACEPARENT in attributes:
            attributes = {key: value for key, value in attributes.items() if key != TRACEPARENT}
        digest.update(
            content_hash(
                event.event_type,
                event.event_time_nanos,
                is_final=event.is_final,
                attributes=attributes,
                payload=event.payload,
            )
        )
    return digest.digest()
