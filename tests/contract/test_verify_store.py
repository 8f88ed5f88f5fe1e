"""Verification of a file: whatever was altered in it is named, and what was not is not."""

import shutil
from pathlib import Path
from typing import Final

import apsw
import pytest

from hub.core.errors import StartRefused
from hub.core.limits import Limits
from hub.core.verify import Finding, VerifyProgress
from hub.store.sqlite.verify import verify_store
from tests.contract.full_store import (
    EVENT_COUNT,
    OTHER,
    TENANT,
    alter,
    findings_in,
    make_full_store,
    rows_of,
)

PAGE_BYTES: Final = 4096
GAP = "(SELECT run_key FROM run WHERE run_id = 'gap')"
COMPLETE = "(SELECT run_key FROM run WHERE run_id = 'complete')"


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_full_store(tmp_path_factory.mktemp("full"))


@pytest.fixture
def database(full_store: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(full_store, tmp_path / "hub.db"))


@pytest.mark.parametrize("is_quiet", [True, False])
def test_in_a_store_as_a_hub_left_it_nothing_is_found_and_nothing_is_written(
    database: Path, *, is_quiet: bool
) -> None:
    before = database.read_bytes()
    *_, last = verify_store(database, limits=Limits(), is_quiet=is_quiet)
    assert last == VerifyProgress(EVENT_COUNT, EVENT_COUNT, 4)
    assert findings_in(database, is_quiet=is_quiet) == []
    assert database.read_bytes() == before


@pytest.mark.parametrize(
    ("statement", "problem", "run_id", "sequence"),
    [
        (f"UPDATE event SET payload = 'x' WHERE run_key = {GAP} AND sequence > 1", "", "gap", 2),
        (f"UPDATE event SET event_type = 'x' WHERE run_key = {GAP} AND sequence = 5", "", "gap", 5),
        (f"UPDATE event SET attributes = NULL WHERE run_key = {GAP} AND sequence = 1", "", "gap", 1),
        (f"UPDATE event SET event_time_nanos = 1 WHERE run_key = {GAP} AND sequence = 2", "", "gap", 2),
        (f"UPDATE event SET is_final = 0 WHERE run_key = {COMPLETE} AND sequence = 7", "", "complete", 7),
        (
            f"UPDATE event SET attributes = '[' WHERE run_key = {GAP} AND sequence = 2",
            "its attributes cannot be read",
            "gap",
            2,
        ),
        (
            f"UPDATE event SET event_type = CAST(x'ff' AS TEXT) WHERE run_key = {GAP} AND sequence = 2",
            "the event after sequence 1 has a text that is not UTF-8",
            "gap",
            2,
        ),
        (
            f"UPDATE event SET position = 1000 WHERE run_key = {GAP} AND sequence = 2",
            "its position 1000 is above the head 12",
            "gap",
            2,
        ),
        (
            f"UPDATE event SET hub_project_key = 2 WHERE run_key = {GAP} AND sequence = 2",
            "it stands in another hub project than its run",
            "gap",
            2,
        ),
    ],
)
def test_the_first_event_that_does_not_fit_is_named(
    database: Path, *, statement: str, problem: str, run_id: str, sequence: int
) -> None:
    alter(database, statement.replace("'x'", "x'78'") if "payload" in statement else statement)
    problem = problem or "its content does not have its content hash"
    of_run = [finding for finding in findings_in(database) if finding.run_id and finding.sequence]
    assert of_run == [Finding(problem, TENANT, "p", run_id, sequence)]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("chain_hash = zeroblob(32)", "its chain hash at 2 is not that of its events"),
        ("cursor = 1", "its cursor is 1, and its events are without a gap up to 2"),
        ("event_count = 4", "it counts 4 events, and 3 are stored"),
        ("highest_sequence = 6", "its highest sequence is 6, and the highest stored is 5"),
        ("final_sequence = 5", "its final sequence is 5, and the final event is None"),
    ],
)
def test_a_head_that_does_not_fit_is_named(database: Path, *, statement: str, problem: str) -> None:
    alter(database, f"UPDATE run SET {statement} WHERE run_id = 'gap'")
    for is_quiet in (True, False):
        assert findings_in(database, is_quiet=is_quiet) == [Finding(problem, TENANT, "p", "gap")]


def test_an_event_that_was_taken_out_or_put_behind_the_final_one_is_named(database: Path) -> None:
    alter(
        database,
        f"DELETE FROM event WHERE run_key = {GAP} AND sequence = 1",
        f"UPDATE event SET is_final = 1 WHERE run_key = {COMPLETE} AND sequence = 3",
    )
    problems = {(each.run_id, each.sequence, each.problem) for each in findings_in(database) if each.run_id}
    assert problems == {
        ("gap", 0, "its cursor is 2, and its events are without a gap up to 0"),
        ("gap", 0, "it counts 3 events, and 2 are stored"),
        ("complete", 3, "its content does not have its content hash"),
        ("complete", 0, "its final sequence is 7, and the final event is 3"),
    }


@pytest.mark.parametrize(
    ("statements", "hub_project", "problem"),
    [
        (
            ["UPDATE hub_project SET stored_bytes = stored_bytes + 1 WHERE hub_project = 'other tenant'"],
            OTHER,
            "it counts ",
        ),
        (
            ["UPDATE hub_project SET active_run_count = 9 WHERE hub_project = 'tenant'"],
            TENANT,
            "it counts 9 runs that are not complete, and there are 2",
        ),
        (
            ["UPDATE hub_project SET journal_head_position = 2 WHERE hub_project = 'tenant'"],
            TENANT,
            "an event of the journal has position 3, above the head 2",
        ),
        (
            ["UPDATE stream SET revision = 3 WHERE stream_id = 's'"],
            TENANT,
            "the stream 's' has revision 3, and 2 events up to 2",
        ),
        (
            ["UPDATE journal_event SET position = 9 WHERE event_id = 'e2'"],
            TENANT,
            "the event 2 of the stream 's' is not where its commit says",
        ),
        (
            ["UPDATE tenure SET fencing_token = 99 WHERE resource = 'held' AND hub_project_key = 1"],
            TENANT,
            "the lease on 'held' has a token or epoch that was never given",
        ),
        (
            ["UPDATE tenure SET epoch = 99 WHERE resource = 'held' AND hub_project_key = 1"],
            TENANT,
            "the lease on 'held' has a token or epoch that was never given",
        ),
        (
            ["INSERT INTO generation_head VALUES (1, 1, 99, 0)"],
            TENANT,
            "its head is behind position 99, at which a generation began",
        ),
        (["DELETE FROM hub"], "", "it has 0 rows of the hub and 1 generations"),
        (["DELETE FROM journal_commit WHERE message_id = 'mx'"], "", "rows of "),
    ],
)
def test_what_is_counted_or_given_and_does_not_fit_is_named(
    database: Path, *, statements: list[str], hub_project: str, problem: str
) -> None:
    alter(database, *statements)
    assert any(
        found.hub_project == hub_project and found.problem.startswith(problem) and not found.run_id
        for found in findings_in(database)
    )


def test_a_run_of_another_hub_projects_project_is_named(database: Path) -> None:
    alter(database, "UPDATE project SET hub_project_key = 2 WHERE project_id = 'q'")
    expected = Finding("its project belongs to another hub project", TENANT, "q", "dropped")
    assert findings_in(database) == [expected]


@pytest.mark.parametrize("sql", ["CREATE TABLE mine (a)", "DROP TRIGGER event_is_kept"])
def test_a_schema_that_somebody_changed_is_named(database: Path, sql: str) -> None:
    connection = apsw.Connection(str(database))
    connection.execute(sql)
    connection.close()
    assert findings_in(database) == [Finding("its schema is not the one that its migrations make")]


def test_each_page_of_the_file_that_was_overwritten_is_noticed(database: Path) -> None:
    whole = database.read_bytes()
    for page in range(1, len(whole) // PAGE_BYTES):
        before, after = whole[: page * PAGE_BYTES], whole[(page + 1) * PAGE_BYTES :]
        database.write_bytes(before + bytes(PAGE_BYTES) + after)
        assert findings_in(database) != [], page


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_gone_through(tmp_path: Path) -> None:
    database = make_full_store(tmp_path, long_run_events=3000)
    (last_page,) = rows_of(
        database, "SELECT max(pageno) FROM dbstat WHERE name = 'event' AND pagetype = 'leaf'"
    )[0]
    whole = database.read_bytes()
    page = int(str(last_page)) // 2
    pages = rows_of(database, f"SELECT pageno FROM dbstat WHERE name = 'event' AND pageno >= {page}")
    hit = min(int(str(number)) for (number,) in pages)
    database.write_bytes(whole[: (hit - 1) * PAGE_BYTES] + bytes(PAGE_BYTES) + whole[hit * PAGE_BYTES :])
    steps = list(verify_store(database, limits=Limits(), is_quiet=True))
    of_runs = [finding for progress in steps for finding in progress.findings if finding.run_id]
    assert {(each.run_id, each.problem.split(" after")[0]) for each in of_runs} == {
        ("complete", "it cannot be read")
    }
    assert steps[-1].run_count == 4


def test_a_file_that_was_cut_is_named(database: Path) -> None:
    database.write_bytes(database.read_bytes()[: 10 * PAGE_BYTES])
    assert findings_in(database) != []


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database")
    for name, sentence in (("none", "is not there"), ("text", "not a database")):
        with pytest.raises(StartRefused, match=sentence):
            findings_in(tmp_path / name)
    assert not (tmp_path / "none").exists()
