"""The file that holds the secret of a maintenance between two commands."""

import json
from pathlib import Path

import pytest

from hub.cli import credential_file
from hub.cli.output import CommandFailed
from synchub.contract import nonce_fault
from synchub.v1.lease_service_pb2 import LeaseCredential

CREDENTIAL = LeaseCredential(
    resource="garden/db é", runtime_id="operator", holder_id="me", fencing_token=2**63 - 1, nonce="n" * 32
)


def test_a_credential_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "credential.json"
    credential_file.write(path, CREDENTIAL)
    assert credential_file.read(path) == CREDENTIAL


def test_nobody_else_can_read_it_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "credential.json"
    credential_file.write(path, CREDENTIAL)
    credential_file.write(path, CREDENTIAL)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_others_could_read_is_not_written_into(tmp_path: Path) -> None:
    path = tmp_path / "credential.json"
    path.write_text("{}")
    path.chmod(0o644)
    credential_file.write(path, CREDENTIAL)
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_file_is_no_credential(tmp_path: Path) -> None:
    path = tmp_path / "credential.json"
    assert credential_file.read(path) is None
    credential_file.remove(path)


@pytest.mark.parametrize(
    "text", ["", "no JSON " + "s" * 32, json.dumps(["s" * 32]), json.dumps({"s" * 32: 1}), '{"nonce": 7}']
)
def test_another_file_is_refused_without_saying_what_is_in_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "credential.json"
    path.write_text(text)
    with pytest.raises(CommandFailed, match="is not the credential of a maintenance") as caught:
        credential_file.read(path)
    assert "s" * 32 not in str(caught.value) + caught.value.hint


def test_what_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandFailed, match="cannot write"):
        credential_file.write(tmp_path / "file" / "credential.json", CREDENTIAL)


def test_each_hub_project_and_resource_has_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    paths = {
        credential_file.default_path(generation, hub_project=hub_project, resource=resource)
        for generation in ("g", "h")
        for hub_project, resource in (("a", "b/c"), ("a/b", "c"), ("a", "b-c"), ("a", "B/c"))
    }
    assert len(paths) == 8
    assert {path.parent for path in paths} == {Path("/state/synchub/maintenance")}


def test_a_new_nonce_is_one_and_another_each_time() -> None:
    nonces = {credential_file.new_nonce() for _ in range(100)}
    assert len(nonces) == 100
    assert {nonce_fault(nonce) for nonce in nonces} == {None}
