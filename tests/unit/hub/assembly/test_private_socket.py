"""The socket on which a hub calls itself lies in a folder that only its user may enter."""

import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub.assembly.private_socket import private_socket
from hub.core.errors import StartRefused


@pytest.fixture(autouse=True)
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # Not the one of pytest: that of a socket must be short.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_the_users_alone_and_goes_with_the_hub(temporary_folder: Path) -> None:
    with private_socket(Path("/data/hub.db")) as socket:
        socket.touch()
        assert mode_of(socket.parent) == 0o700
        assert socket.parent.parent == temporary_folder
    assert list(temporary_folder.iterdir()) == []


def test_two_stores_have_two_sockets_and_a_short_path_each(temporary_folder: Path) -> None:
    long = Path("/data") / ("x" * 200) / "hub.db"
    with private_socket(Path("/data/hub.db")) as one, private_socket(long) as two:
        assert one != two
        # What the system takes as the path of a socket is about 100 bytes.
        assert max(len(str(path.relative_to(temporary_folder))) for path in (one, two)) < 50


def test_what_a_killed_hub_left_is_used_again(temporary_folder: Path) -> None:
    with private_socket(Path("/data/hub.db")) as socket:
        path = socket
    path.parent.mkdir(0o700)
    path.touch()
    with private_socket(Path("/data/hub.db")) as socket:
        assert socket == path
        assert not socket.exists()
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["open", "link", "file"])
def test_what_somebody_else_put_there_is_not_used(temporary_folder: Path, kind: str) -> None:
    with private_socket(Path("/data/hub.db")) as socket:
        foreseen = socket.parent
    if kind == "open":
        foreseen.mkdir()
        foreseen.chmod(0o777)
    elif kind == "link":
        elsewhere = temporary_folder / "elsewhere"
        elsewhere.mkdir(0o700)
        foreseen.symlink_to(elsewhere)
    else:
        foreseen.touch()
    with private_socket(Path("/data/hub.db")) as socket:
        assert socket.parent != foreseen
        assert mode_of(socket.parent) == 0o700
    assert not socket.parent.exists()
    assert foreseen.exists()


def test_what_hubs_left_that_were_killed_is_removed_by_any_later_one(temporary_folder: Path) -> None:
    with private_socket(Path("/data/killed.db")) as socket:
        left = socket
    left.parent.mkdir(0o700)
    left.touch()
    with private_socket(Path("/data/running.db")) as running:
        running.touch()
        left.parent.mkdir(0o700, exist_ok=True)
        left.touch()
        with private_socket(Path("/data/later.db")) as later:
            assert not left.parent.exists()
            # One that runs keeps what it has.
            assert running.exists()
            assert set(temporary_folder.iterdir()) == {running.parent, later.parent}
    assert list(temporary_folder.iterdir()) == []


def test_two_hubs_of_one_name_do_not_share_a_folder(temporary_folder: Path) -> None:
    with private_socket(Path("/data/hub.db")) as one, private_socket(Path("/data/hub.db")) as two:
        assert one.parent != two.parent
        assert mode_of(two.parent) == 0o700
    assert list(temporary_folder.iterdir()) == []


def test_a_path_that_no_socket_can_have_is_not_taken(
    temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = temporary_folder / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    monkeypatch.setattr("hub.assembly.private_socket.SHORT_BASE", temporary_folder)
    with private_socket(Path("/data/hub.db")) as socket:
        assert socket.parent.parent == temporary_folder
    assert list(deep.iterdir()) == []


def test_where_no_folder_can_be_made_the_start_is_refused(
    temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = temporary_folder / "missing"
    monkeypatch.setattr("tempfile.tempdir", str(missing))
    monkeypatch.setattr("hub.assembly.private_socket.SHORT_BASE", missing)
    with pytest.raises(StartRefused, match="no temporary folder") as refused, private_socket(Path("/hub.db")):
        pass
    assert "TMPDIR" in (refused.value.hint or "")
    assert not missing.exists()
