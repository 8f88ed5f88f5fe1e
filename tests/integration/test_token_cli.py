"""``synchub token`` as shipped: the first token of a store that no hub serves, and those of a running hub."""

import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hub.core.limits import Limits
from tests.contract.secured import make_tokens
from tests.integration.hub_process import SECONDS_MAX, SYNCHUB, HubProcess, Told, synchub

NOWHERE: Final = "127.0.0.1:1"
TOKEN: Final = re.compile(r"synchub_[0-9a-f]{20}_[0-9a-f]{64}\n")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "hub.db"


@pytest.fixture
def admin_file(database: Path, tmp_path: Path) -> Path:
    """The first token of a store, in a file."""
    path = tmp_path / "admin.token"
    made = offline(database, "create", "--role", "admin", "--name", "first", "--output", str(path))
    assert made.code == 0, made.error
    return path


@pytest.fixture
def hub(database: Path, admin_file: Path) -> Iterator[HubProcess]:
    process = HubProcess(database)
    yield process
    process.stop()


def offline(database: Path, *arguments: str, **variables: str) -> Told:
    """Run ``synchub token`` on a store by itself."""
    return synchub(NOWHERE, "token", *arguments, "--db", str(database), **variables)


def token_id(told: Told) -> str:
    return told.out.split("_")[1]


def test_the_first_token_is_made_before_there_is_a_hub_and_closes_it(
    hub: HubProcess, admin_file: Path
) -> None:
    assert TOKEN.fullmatch(admin_file.read_text())
    assert stat.S_IMODE(admin_file.stat().st_mode) == 0o600
    refused = synchub(hub.address, "runs")
    assert (refused.code, refused.out) == (1, "")
    assert "--token-file" in refused.error
    assert synchub(hub.address, "runs", "--token-file", str(admin_file)).out == "no runs\n"
    assert synchub(hub.address, "runs", SYNCHUB_TOKEN=admin_file.read_text().strip()).out == "no runs\n"


def test_a_token_is_alone_on_standard_output_and_shown_this_once(database: Path) -> None:
    made = offline(database, "create", "--role", "reader", "--name", "board", "--expires-in", "90d")
    assert made.code == 0
    assert TOKEN.fullmatch(made.out)
    secret = made.out.strip().split("_")[2]
    assert "board, reader of tenant" in made.error
    assert secret not in made.error
    listed = offline(database, "list")
    assert secret not in offline(database, "list", "--json").out + listed.out
    header, row = listed.out.splitlines()
    assert header.replace(" (UTC)", "").split() == [
        *("ID", "NAME", "ROLE", "STATE", "RUNTIME", "PROJECTS", "MADE", "EXPIRES")
    ]
    assert row.split()[:5] == [token_id(made), "board", "reader", "live", "all"]


def test_json_has_all_of_a_token(database: Path) -> None:
    arguments = ["create", "--role", "runtime", "--name", "b", "--runtime", "b7", "--prefix", "a-"]
    (made,) = offline(database, *arguments, "--prefix", "b-", "--json").json_lines()
    assert (made["role"], made["runtime_id"], made["project_id_prefixes"]) == ("RUNTIME", "b7", ["a-", "b-"])
    assert TOKEN.fullmatch(f"{made.pop('bearer_token')}\n")
    assert offline(database, "list", "--json").json_lines() == [made]
    assert made["state"] == "live"


def test_a_revoked_token_is_refused_and_listed_as_such(database: Path) -> None:
    made = offline(database, "create", "--role", "reader", "--name", "x")
    for _ in range(2):
        revoked = offline(database, "revoke", token_id(made))
        assert (revoked.code, revoked.out) == (0, f"{token_id(made)} (x) is revoked\n")
    assert offline(database, "list").out.splitlines()[1].split()[3] == "revoked"
    missing = offline(database, "revoke", "f" * 20)
    assert (missing.code, missing.error) == (1, f"synchub: there is no token with token id '{'f' * 20}'\n")


def test_a_list_says_which_tokens_still_count(database: Path) -> None:
    make_tokens(database, limits=Limits())
    tokens = offline(database, "list", "--json", SYNCHUB_HUB_PROJECT="one").json_lines()
    states = {str(token["display_name"]): token["state"] for token in tokens}
    assert {name: states.pop(name) for name in ("expired", "revoked")} == {
        "expired": "expired",
        "revoked": "revoked",
    }
    assert set(states.values()) == {"live"}
    assert {token["hub_project"] for token in tokens} == {"one"}
    assert len(offline(database, "list", "--limit", "3", SYNCHUB_HUB_PROJECT="one").out.splitlines()) == 1 + 3


def test_a_store_that_a_hub_serves_is_left_to_it(hub: HubProcess, database: Path, admin_file: Path) -> None:
    for arguments in (
        ("create", "--role", "admin", "--name", "second"),
        ("list",),
        ("revoke", admin_file.read_text().split("_")[1]),
    ):
        refused = offline(database, *arguments)
        assert (refused.code, refused.out) == (1, "")
        assert re.search(r"a hub \(pid [0-9]+\) serves .*hub\.db\n  .*--hub", refused.error)
    assert synchub(hub.address, "runs", "--token-file", str(admin_file)).code == 0


def test_over_the_wire_it_is_the_same(hub: HubProcess, admin_file: Path, tmp_path: Path) -> None:
    shown = ("--token-file", str(admin_file))
    path = tmp_path / "reader.token"
    arguments = ("create", "--role", "reader", "--name", "r", "--output", str(path))
    made = synchub(hub.address, "token", *arguments, *shown)
    assert made.code == 0, made.error
    assert str(path) in made.out
    reader = ("--token-file", str(path))
    assert synchub(hub.address, "runs", *reader).code == 0
    listed = synchub(hub.address, "token", "list", *shown).out
    assert [line.split()[1] for line in sorted(listed.splitlines()[1:])] in (["first", "r"], ["r", "first"])
    denied = synchub(hub.address, "token", "list", *reader)
    assert (denied.code, denied.out) == (1, "")
    assert "the role reader may not call HubService/ListTokens" in denied.error
    revoked = synchub(hub.address, "token", "revoke", path.read_text().split("_")[1], *shown)
    assert "its streams end within 5 s" in revoked.out
    refused = synchub(hub.address, "runs", *reader)
    assert (refused.code, refused.out) == (1, "")
    assert "revoked" in refused.error


def test_a_hub_that_lets_anybody_in_still_does_and_who_makes_a_token_is_told(database: Path) -> None:
    hub = HubProcess(database)
    try:
        made = synchub(hub.address, "token", "create", "--role", "admin", "--name", "first")
        assert (made.code, bool(TOKEN.fullmatch(made.out))) == (0, True)
        assert "lets anybody in until it is started again" in made.error
        assert synchub(hub.address, "runs").code == 0
    finally:
        hub.stop()
    hub = HubProcess(database)
    try:
        assert synchub(hub.address, "runs").code == 1
        quiet = synchub(
            hub.address,
            *("token", "create", "--role", "reader", "--name", "r"),
            SYNCHUB_TOKEN=made.out.strip(),
        )
        assert "anybody" not in quiet.error
    finally:
        hub.stop()


def test_an_output_file_is_never_overwritten_and_does_not_stay_without_a_token(
    database: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    path.write_text("mine")
    arguments = ("create", "--role", "reader", "--name", "x", "--output", str(path))
    refused = offline(database, *arguments)
    assert refused.code == 1
    assert "is there already" in refused.error
    assert path.read_text() == "mine"
    assert not database.exists()
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert offline(database, *arguments).code == 1
    path.unlink()
    # Nobody answers there: no token, no file.
    unreached = synchub(NOWHERE, "token", *arguments)
    assert unreached.code == 1
    assert not path.exists()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--role", "boss", "--name", "x"), "--role 'boss' is not one of runtime, reader, operator, admin"),
        (("--role", "reader", "--name", ""), "display_name is empty"),
        (("--role", "reader", "--name", "x", "--runtime", "r"), "runtime_id is given"),
        (("--role", "reader", "--name", "x", "--prefix", ""), "project_id_prefixes[0] is empty"),
        (("--role", "reader", "--name", "x", "--expires-in", "10ms"), "ttl is 0.01 s; 1 s to 100 years"),
        (("--role", "reader", "--name", "x", "--expires-in", "90"), "--expires-in '90' is no span of time"),
    ],
)
def test_what_is_wrong_is_a_sentence_and_leaves_no_store(
    database: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    refused = offline(database, "create", *arguments)
    assert refused.code != 0
    assert refused.error.startswith(f"synchub: {sentence}")
    assert not database.exists()


def test_a_store_is_not_made_to_be_listed_and_needs_a_hub_project(database: Path) -> None:
    refused = offline(database, "list")
    assert (refused.code, refused.error) == (1, f"synchub: there is no store {database}\n")
    environment = {"PATH": os.environ["PATH"], "SYNCHUB_TOKEN": "synchub_" + "0" * 20 + "_" + "0" * 64}
    told = subprocess.run(
        [SYNCHUB, "token", "list", "--db", str(database)],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env=environment,
    )
    assert told.returncode == 2
    assert "no hub project is given" in told.stderr
    assert not database.exists()


def test_a_file_that_is_no_store_is_left_alone(database: Path) -> None:
    database.write_bytes(b"something else")
    refused = offline(database, "create", "--role", "admin", "--name", "x")
    assert refused.code == 1
    assert "is not a database of SQLite" in refused.error
    assert database.read_bytes() == b"something else"


def test_projects_is_a_name_of_project(hub: HubProcess, admin_file: Path) -> None:
    shown = ("--token-file", str(admin_file))
    assert synchub(hub.address, "project", "bind", "mine", *shown).code == 0
    assert synchub(hub.address, "projects", "list", *shown, "--json").json_lines()[0]["project_id"] == "mine"
    assert synchub(hub.address, "project", "release", "mine", *shown).code == 0
