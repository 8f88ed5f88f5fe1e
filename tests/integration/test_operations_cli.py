"""``synchub backup``, ``restore``, ``verify`` and ``migrate`` as a person types them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import apsw
import grpc
import pytest

from hub.store.sql_files import load_migrations
from hub.store.sqlite.file import APPLICATION_ID, schema_version_newest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.full_store import alter
from tests.contract.pushing import events, push
from tests.integration.hub_process import HUB_PROJECT, SECONDS_MAX, SYNCHUB, HubProcess, Told, synchub


def told(*arguments: str | Path) -> Told:
    """Run a command that asks no hub."""
    return synchub("127.0.0.1:1", *map(str, arguments))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A store with two runs, which no hub serves now."""
    hub = HubProcess(tmp_path / "hub.db")
    fill(hub.address)
    hub.stop()
    return tmp_path / "hub.db"


def fill(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = SyncServiceStub(channel)
        push(stub, HUB_PROJECT, batch=events(1, 3))
        push(stub, HUB_PROJECT, run_id="r2", batch=events(1, 2, is_final=True))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, HubProcess]]:
    hub = HubProcess(tmp_path / "hub.db")
    fill(hub.address)
    yield tmp_path / "hub.db", hub
    hub.stop()


def test_a_store_goes_through_backup_restore_and_verification(database: Path, tmp_path: Path) -> None:
    backup, new = tmp_path / "b.db", tmp_path / "new.db"
    taken = told("backup", "--db", database, "--to", backup)
    assert taken.out == f"{backup}: {backup.stat().st_size} bytes, verified\n"
    restored = told("restore", backup, "--db", new)
    assert restored.code == 0, restored.error
    assert f"{HUB_PROJECT}: positions up to 5 hold, in the journal up to 0" in restored.out
    assert "Runtimes that come back push it again" in restored.out
    verified = told("verify", "--db", new)
    assert (verified.code, verified.out) == (0, "5 events of 2 runs: all as they should be\n")
    hub = HubProcess(new)
    hub.stop()


def test_programs_are_told_in_json(database: Path, tmp_path: Path) -> None:
    backup, new = tmp_path / "b.db", tmp_path / "new.db"
    (taken,) = told("backup", "--db", database, "--to", backup, "--json").json_lines()
    assert taken == {"file_name": str(backup), "size_bytes": backup.stat().st_size}
    (restored,) = told("restore", backup, "--db", new, "--json").json_lines()
    assert restored["head_positions"] == {HUB_PROJECT: {"head_position": 5, "journal_head_position": 0}}
    (verified,) = told("verify", "--db", new, "--json").json_lines()
    assert verified == {"event_count": 5, "run_count": 2, "finding_count": 0, "is_complete": True}
    (checked,) = told("migrate", "--db", new, "--check", "--json").json_lines()
    assert checked == {"schema_before": schema_version_newest(), "schema_after": schema_version_newest()}


def test_a_store_that_is_served_is_backed_up_and_verified_all_the_same(
    served: tuple[Path, HubProcess], tmp_path: Path
) -> None:
    database, hub = served
    assert told("backup", "--db", database, "--to", tmp_path / "b.db").code == 0
    verified = told("verify", "--db", database)
    assert verified.code == 0
    assert "a hub serves the file" in verified.out
    over_the_wire = synchub(hub.address, "verify")
    assert (over_the_wire.code, over_the_wire.out) == (0, "5 events of 2 runs: all as they should be\n")
    refused = told("restore", database, "--db", tmp_path / "new.db")
    assert (refused.code, refused.out) == (1, "")
    assert "a hub serves" in refused.error
    in_place = told("restore", "--in-place", "--db", database)
    assert in_place.code == 1
    assert "already serves" in in_place.error
    nowhere = synchub(hub.address, "backup")
    assert nowhere.code == 1
    assert "without a folder for backups" in nowhere.error
    assert sorted(path.name for path in tmp_path.glob("*.db*") if "hub.db" not in path.name) == ["b.db"]


def test_a_hub_takes_backups_into_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    arguments = [str(SYNCHUB), "serve", "--db", str(tmp_path / "hub.db"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*arguments, "--http", "none", "--backup-folder", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[2]
        fill(address)
        taken = synchub(address, "backup", "b.db")
        again = synchub(address, "backup", "b.db")
        named = synchub(address, "backup", "--json")
        path = synchub(address, "backup", "../b.db")
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)
    size = (folder / "b.db").stat().st_size
    assert (taken.code, taken.out) == (0, f"b.db: {size} bytes, verified\n")
    assert (again.code, path.code) == (1, 1)
    assert "b.db" in again.error
    assert sorted(each.name for each in folder.iterdir()) == sorted(
        ["b.db", str(json.loads(named.out)["file_name"])]
    )
    assert not (tmp_path / "b.db").exists()


def test_what_does_not_fit_is_named_and_the_exit_code_says_so(database: Path, tmp_path: Path) -> None:
    alter(database, "UPDATE event SET payload = x'00' WHERE sequence = 2")
    verified = told("verify", "--db", database)
    assert verified.code == 1
    assert verified.out.splitlines() == [
        f"hub project '{HUB_PROJECT}', project 'p', run '{run}', event 2:"
        " its content does not have its content hash"
        for run in ("r", "r2")
    ] + [line for line in verified.out.splitlines() if "stored bytes" in line]
    assert "findings in 5 events of 2 runs" in verified.error
    for finding in told("verify", "--db", database, "--json").json_lines()[:2]:
        assert (finding["project_id"], finding["sequence"]) == ("p", 2)
    taken = told("backup", "--db", database, "--to", tmp_path / "b.db")
    assert taken.code == 1
    assert "the copy does not verify" in taken.error
    assert not (tmp_path / "b.db").exists()


def test_a_store_is_brought_to_the_newest_schema(tmp_path: Path) -> None:
    database, newest = tmp_path / "old.db", schema_version_newest()
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA journal_mode = WAL")
    for number, script in load_migrations("hub.store.sqlite.migrations")[:2]:
        connection.execute(script)
        connection.execute(f"PRAGMA user_version = {number}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.close()
    checked = told("migrate", "--db", database, "--check")
    assert (checked.code, checked.out) == (1, "")
    assert f"has schema 2, and this program's is {newest}" in checked.error
    migrated = told("migrate", "--db", database)
    assert (migrated.code, migrated.out) == (0, f"{database}: migrated from schema 2 to {newest}\n")
    assert told("migrate", "--db", database).out == f"{database} has schema {newest}: nothing to do\n"
    assert told("migrate", "--db", database, "--check").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["backup", "--db", "hub.db"], 2, "--db FILE and --to FILE belong together"),
        (["backup", "name", "--db", "hub.db", "--to", "b.db"], 2, "belong together"),
        (["backup", "--db", "none.db", "--to", "b.db"], 1, "the store none.db is not there"),
        (["restore", "--db", "new.db"], 2, "give either BACKUP"),
        (["restore", "b.db", "--in-place", "--db", "new.db"], 2, "give either BACKUP"),
        (["restore", "none.db", "--db", "new.db"], 1, "the backup none.db is not there"),
        (["verify", "--db", "none.db"], 1, "the store none.db is not there"),
        (["migrate", "--db", "none.db"], 1, "the store none.db is not there"),
        (["migrate", "--db", "none.db", "--check"], 1, "the store none.db is not there"),
    ],
)
def test_a_mistake_is_a_sentence_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arguments: list[str], code: int, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    mistaken = told(*arguments)
    assert (mistaken.code, mistaken.out) == (code, "")
    assert sentence in mistaken.error
    assert "Traceback" not in mistaken.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["backup", "--db", "empty.db", "--to", "b.db"], "the store empty.db is empty"),
        (["restore", "empty.db", "--db", "new.db"], "the backup empty.db is empty"),
        (["restore", "--in-place", "--db", "empty.db"], "the store empty.db is empty"),
        (["verify", "--db", "empty.db"], "the store empty.db is empty"),
        (["migrate", "--db", "empty.db"], "the store empty.db is empty"),
    ],
)
def test_an_empty_file_is_called_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.db").touch()
    mistaken = told(*arguments)
    assert (mistaken.code, mistaken.out) == (1, "")
    assert sentence in mistaken.error
    assert (tmp_path / "empty.db").read_bytes() == b""
    assert {path.name for path in tmp_path.iterdir()} <= {"empty.db", "empty.db.lock"}


def test_a_backup_that_was_cut_off_is_called_damaged_and_makes_nothing(
    database: Path, tmp_path: Path
) -> None:
    assert told("backup", "--db", database, "--to", tmp_path / "b.db").code == 0
    (tmp_path / "cut.db").write_bytes((tmp_path / "b.db").read_bytes()[:20_000])
    restored = told("restore", tmp_path / "cut.db", "--db", tmp_path / "new.db")
    assert restored.code == 1
    assert "it does not verify" in restored.error
    assert not (tmp_path / "new.db").exists()


def test_a_page_that_is_damaged_is_told_in_sentences_alone(database: Path, tmp_path: Path) -> None:
    assert told("backup", "--db", database, "--to", tmp_path / "b.db").code == 0
    connection = apsw.Connection(str(tmp_path / "b.db"))
    root_page = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'event'").get
    page_bytes = connection.pragma("page_size")
    connection.close()
    with (tmp_path / "b.db").open("r+b") as file:
        file.seek((int(str(root_page)) - 1) * int(str(page_bytes)))
        file.write(b"\xff" * 8)
    verified = told("verify", "--db", tmp_path / "b.db")
    assert verified.code == 1
    assert "the structure of the file is damaged" in verified.out
    assert "Restore a backup that verifies" in verified.error
    assert "store_unavailable" not in verified.out + verified.error


def test_a_file_that_is_there_is_not_written_over(database: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    taken = told("backup", "--db", database, "--to", tmp_path / "mine")
    assert taken.code == 1
    assert "is there already" in taken.error
    assert told("backup", "--db", database, "--to", tmp_path / "b.db").code == 0
    restored = told("restore", tmp_path / "b.db", "--db", tmp_path / "mine")
    assert restored.code == 1
    assert "is there already" in restored.error
    assert (tmp_path / "mine").read_text() == "mine"
    served = told("serve", "--db", tmp_path / "b.db", "--http", "none", "--listen", "127.0.0.1:0")
    assert served.code == 1
    assert "is a backup of a hub's store" in served.error
