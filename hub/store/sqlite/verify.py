"""Verifies a whole file: structure, schema, hashes, chains, heads, positions, journal, what is counted.

Reads only, and in short transactions, so that a hub may go on with the file meanwhile; what only holds
while nobody writes is left out then. Memory is bounded by a page of events.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, cast

import apsw

from hub.core.backup import Stopped
from hub.core.errors import StartRefused, StorageUnavailable
from hub.core.limits import Limits
from hub.core.selection import PageBounds
from hub.core.values import HubProject
from hub.core.verify import Finding, Unreadable, VerifyPlace, VerifyProgress
from hub.store.session import Parameters, Row, SqlValue
from hub.store.sql_files import load_statements
from hub.store.sqlite import file
from hub.store.sqlite.session import SqliteSession
from hub.store.verify_reading import SqlVerifyReads

PAGE: Final = PageBounds(entries_max=2_000, bytes_max=2 * 1024 * 1024)
"""How much is looked at in one transaction."""
PROBLEMS_MAX: Final = 16
"""Findings of one kind that are told; a damaged file could have millions."""
STEPS_BETWEEN_LOOKS: Final = 100_000
"""Steps of SQLite's machine after which it is looked whether to stop."""

DAMAGED: Final = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.SQLError)
"""What SQLite raises where a file is not as its schema says; that is a finding."""

_STATEMENTS: Final[Mapping[str, str]] = load_statements("hub.store.sqlite", "operations.sql", "reading.sql")


class _TenantRow(NamedTuple):
    hub_project_key: int
    hub_project: str
    head_position: int


class _TenantCounts(NamedTuple):
    journal_head_position: int
    stored_bytes: int
    active_run_count: int


@dataclass(slots=True)
class _Counted:
    """What was counted of a tenant while its events were gone through."""

    stored_bytes: int = 0
    active_run_count: int = 0


@dataclass(slots=True)
class _Verification:
    """One file that is being verified."""

    connection: apsw.Connection
    is_quiet: bool
    is_stopping: Callable[[], bool]
    progress: VerifyProgress = field(default_factory=VerifyProgress)
    counted: dict[int, _Counted] = field(default_factory=dict)

    def rows(self, statement: str, **parameters: SqlValue) -> list[tuple[SqlValue, ...]]:
        """Run one statement in a transaction of its own; it may be a long one."""
        with interruptible(self.connection, self.is_stopping):
            return list(self.connection.execute(_STATEMENTS[statement], parameters))


class _VerifySession(SqliteSession):
    """A session to which a damaged page is a finding, not a store that is unavailable."""

    def fetch_composed(self, sql: str, parameters: Parameters = ()) -> Iterator[Row]:
        """Run composed SQL and give its rows. Raises: Unreadable besides."""
        rows = super().fetch_composed(sql, parameters)
        try:
            yield from rows
        except StorageUnavailable as error:
            if isinstance(error.__cause__, DAMAGED):
                raise Unreadable(str(error.__cause__)) from error
            raise


def verify_store(
    database: Path, *, limits: Limits, is_quiet: bool, is_stopping: Callable[[], bool] = lambda: False
) -> Generator[VerifyProgress, None, None]:
    """Verify a file, giving how far it is and what was found since the last time.

    ``is_quiet``: nobody writes meanwhile, so that also its structure (``integrity_check``) and what is
    counted are looked at. Of an older schema structure and events are looked at alone: the rest once it is
    migrated.

    Raises: StartRefused where the file is not a store, or a newer one; Stopped.
    """
    file.application_id_there(database)
    try:
        connection = file.connect_for_reading(database, busy_timeout_seconds=limits.busy_timeout_seconds)
    except DAMAGED as error:
        yield VerifyProgress(findings=(_unreadable_finding(error),))
        return
    except apsw.Error as error:
        raise _unreadable(database, error) from error
    try:
        connection.execute(f"PRAGMA cache_size = -{file.WRITER_CACHE_KIB}")
        verification = _Verification(connection, is_quiet, is_stopping)
        yield from _verify(verification, database)
    finally:
        connection.close(True)


@contextmanager
def interruptible(connection: apsw.Connection, is_stopping: Callable[[], bool]) -> Iterator[None]:
    """Let long statements of the block end soon after somebody wants them to.

    Raises: Stopped.
    """
    connection.set_progress_handler(is_stopping, STEPS_BETWEEN_LOOKS)
    try:
        yield
    except apsw.InterruptError as error:
        raise Stopped from error
    finally:
        connection.set_progress_handler(None)


def _verify(verification: _Verification, database: Path) -> Iterator[VerifyProgress]:
    connection = verification.connection
    try:
        version, newest = file.schema_version_of(connection, database)
        if not file.is_schema_as_migrated(connection, version):
            yield _found(verification, [Finding("its schema is not the one that its migrations make")])
        if verification.is_quiet:
            yield _found(verification, _structure(verification))
            yield _found(verification, _missing_rows(verification))
        before = connection.pragma("data_version")
        tenants = [
            _TenantRow._make(cast("tuple[int, str, int]", row))
            for row in verification.rows("tenants_to_verify")
        ]
        yield from _events(verification, tenants)
        if version < newest:
            return
        yield _found(verification, _lives(verification))
        for tenant in tenants:
            yield _found(verification, _tenant(verification, tenant))
            if verification.is_quiet and before == connection.pragma("data_version"):
                yield _found(verification, _counts(verification, tenant))
    except DAMAGED as error:
        yield _found(verification, [_unreadable_finding(error)])
    except (StorageUnavailable, Unreadable) as error:
        yield _found(verification, [_unreadable_finding(error.__cause__ or error)])
    except apsw.Error as error:
        raise _unreadable(database, error) from error


def _found(verification: _Verification, findings: Iterable[Finding]) -> VerifyProgress:
    """Return the progress with what was found since the last one; what cannot be read is a finding too."""
    found: list[Finding] = []
    try:
        found.extend(findings)
    except DAMAGED as error:
        found.append(_unreadable_finding(error))
    verification.progress = verification.progress.with_findings(found)
    return verification.progress


def _structure(verification: _Verification) -> Iterator[Finding]:
    """Ask SQLite whether pages, indexes and constraints are whole."""
    connection = verification.connection
    with interruptible(connection, verification.is_stopping):
        for (text,) in connection.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})"):
            problem = " ".join(str(text).split())
            if problem != "ok":
                yield Finding(f"the structure of the file is damaged: {problem}")


def _missing_rows(verification: _Verification) -> Iterator[Finding]:
    """Ask SQLite for rows that belong to rows which are not there."""
    connection = verification.connection
    with interruptible(connection, verification.is_stopping):
        tables = {str(row[0]) for row in connection.execute("PRAGMA foreign_key_check")}
    for table in sorted(tables):
        yield Finding(f"rows of {table} belong to rows that are not there")


def _lives(verification: _Verification) -> Iterator[Finding]:
    """Look at the store itself."""
    ((hub_count, life_count),) = cast("list[tuple[int, int]]", verification.rows("count_lives"))
    if hub_count != 1 or life_count < 1:
        yield Finding(f"it has {hub_count} rows of the hub and {life_count} generations")
    for hub_project, head in cast("list[tuple[str, int]]", verification.rows("heads_of_lives_ahead")):
        problem = f"its head is behind position {head}, at which a generation began"
        yield Finding(problem, hub_project)
    foreign = verification.rows("runs_of_foreign_projects", entries_max=PROBLEMS_MAX)
    for hub_project, project_id, run_id in cast("list[tuple[str, str, str]]", foreign):
        yield Finding("its project belongs to another hub project", hub_project, project_id, run_id)


def _events(verification: _Verification, tenants: list[_TenantRow]) -> Iterator[VerifyProgress]:
    """Go through all events of all tenants, page by page, a transaction each."""
    session = _VerifySession(verification.connection, _STATEMENTS, is_writer=False)

    def find_tenant(hub_project: HubProject) -> tuple[int, int]:
        rows = session.fetch("find_hub_project", {"hub_project": hub_project})
        return cast("tuple[int, int]", next(rows, (0, 0)))

    reads = SqlVerifyReads(session, find_tenant=find_tenant)
    total_count = sum(reads.totals(HubProject(each.hub_project), None).event_count for each in tenants)
    verification.progress = verification.progress.of_total(total_count)
    for tenant in tenants:
        counted = verification.counted[tenant.hub_project_key] = _Counted()
        place: VerifyPlace | None = VerifyPlace()
        while place is not None:
            if verification.is_stopping():
                raise Stopped
            session.begin_reading()
            try:
                page = reads.page(HubProject(tenant.hub_project), None, place=place, bounds=PAGE)
            finally:
                session.rollback()
            counted.stored_bytes += page.stored_bytes
            counted.active_run_count += page.active_run_count
            verification.progress = verification.progress.after(page)
            yield verification.progress
            place = page.next_place


def _tenant(verification: _Verification, tenant: _TenantRow) -> Iterator[Finding]:
    """Look at the journal and the leases of a tenant, as they are now."""
    key = tenant.hub_project_key
    bounded: dict[str, SqlValue] = {"hub_project_key": key, "entries_max": PROBLEMS_MAX}
    gaps = cast("list[tuple[str, int, int, int | None]]", verification.rows("streams_with_gaps", **bounded))
    for stream_id, revision, count, highest in gaps:
        problem = f"the stream {stream_id!r} has revision {revision}, and {count} events up to {highest or 0}"
        yield Finding(problem, tenant.hub_project)
    beside = verification.rows("journal_events_beside_commits", **bounded)
    for stream_id, revision in cast("list[tuple[str, int]]", beside):
        problem = f"the event {revision} of the stream {stream_id!r} is not where its commit says"
        yield Finding(problem, tenant.hub_project)
    tenures = verification.rows("tenures_above_their_resource", **bounded)
    for (resource,) in cast("list[tuple[str]]", tenures):
        problem = f"the lease on {resource!r} has a token or epoch that was never given"
        yield Finding(problem, tenant.hub_project)


def _counts(verification: _Verification, tenant: _TenantRow) -> Iterator[Finding]:
    """Hold heads and what is counted of a tenant against what there is."""
    key = tenant.hub_project_key
    (row,) = cast("list[tuple[int, int, int]]", verification.rows("counts_of_tenant", hub_project_key=key))
    counts, counted = _TenantCounts._make(row), verification.counted[key]
    ((event_position, journal_position),) = cast(
        "list[tuple[int | None, int | None]]", verification.rows("highest_positions", hub_project_key=key)
    )
    for name, position, head in (
        ("event", event_position, tenant.head_position),
        ("event of the journal", journal_position, counts.journal_head_position),
    ):
        if position is not None and position > head:
            yield Finding(f"an {name} has position {position}, above the head {head}", tenant.hub_project)
    rows = verification.rows("journal_bytes", hub_project_key=key)
    stored_bytes = counted.stored_bytes + cast("int", rows[0][0])
    if counts.stored_bytes != stored_bytes:
        problem = f"it counts {counts.stored_bytes} stored bytes, and there are {stored_bytes}"
        yield Finding(problem, tenant.hub_project)
    if counts.active_run_count != counted.active_run_count:
        problem = (
            f"it counts {counts.active_run_count} runs that are not complete,"
            f" and there are {counted.active_run_count}"
        )
        yield Finding(problem, tenant.hub_project)


def _unreadable_finding(error: BaseException) -> Finding:
    return Finding(f"it cannot be read any further: {error}")


def _unreadable(database: Path, error: apsw.Error) -> StartRefused:
    if isinstance(error, apsw.ReadOnlyError):
        sentence = f"whoever was writing {database} was interrupted, and left it half written."
        return StartRefused(sentence, "Do that again: it begins with putting the file right.")
    sentence = f"cannot read the store {database}: {error}."
    return StartRefused(sentence, "Check the file's permissions, and those of its folder.")
