"""Lines of odd files become events, byte for byte."""

import io
import random
from pathlib import Path

import pytest

from runtime_agent.cli.import_file import ImportCount, import_lines
from runtime_agent.core.errors import LineRefusedError
from runtime_agent.core.values import AppendRequest, NewEvent, RunKey
from runtime_agent.event_log.sqlite_reader import SqliteEventLogReader
from runtime_agent.local_client import open_local_log
from synchub.contract import PAYLOAD_BYTES_MAX

RUN = RunKey("p", "file")


def run_import(folder: Path, content: bytes, *, is_last_final: bool = False) -> ImportCount:
    with open_local_log(str(folder)) as log:
        return import_lines(
            log,
            io.BytesIO(content),
            folder=str(folder),
            run=RUN,
            name="file",
            is_last_final=is_last_final,
            advance=lambda _: None,
        )


def stored(folder: Path) -> list[tuple[bytes | None, bool]]:
    reader = SqliteEventLogReader.open(str(folder))
    try:
        found = reader.read_events(RUN, after_sequence=0, count_max=100_000, bytes_max=2**40)
        assert {event.event_type for event in found} <= {"line"}
        assert {event.event_time_nanos for event in found} <= {None}
        assert [event.sequence for event in found] == list(range(1, len(found) + 1))
        return [(event.payload, event.is_final) for event in found]
    finally:
        reader.close()


def payloads(folder: Path) -> list[bytes | None]:
    return [payload for payload, _ in stored(folder)]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"a\n\n\nb\n", [b"a", b"", b"", b"b"]),
        (b"dos\r\nmac\rstill\n", [b"dos\r", b"mac\rstill"]),
        (b"nul\0in\n\xff\xfe not utf-8\n", [b"nul\0in", b"\xff\xfe not utf-8"]),
        (b"\xe2\x80\xa8 separator\x0b\x0c\x1c\n", [b"\xe2\x80\xa8 separator\x0b\x0c\x1c"]),
    ],
)
def test_a_line_is_what_stands_between_newlines(tmp_path: Path, content: bytes, lines: list[bytes]) -> None:
    assert run_import(tmp_path, content) == ImportCount(len(lines), 0)
    assert payloads(tmp_path) == lines


def test_lines_survive_the_edges_of_what_is_read_at_once(tmp_path: Path, rng: random.Random) -> None:
    lines = [rng.randbytes(rng.choice((0, 1, 100, 70_000))).replace(b"\n", b"") for _ in range(200)]
    lines += [bytes(PAYLOAD_BYTES_MAX), bytes(PAYLOAD_BYTES_MAX - 1), b"end"]
    run_import(tmp_path, b"\n".join(lines) + b"\n")
    assert payloads(tmp_path) == lines


def test_the_same_file_again_changes_nothing(tmp_path: Path) -> None:
    run_import(tmp_path, b"a\nb\n")
    before = stored(tmp_path)
    assert run_import(tmp_path, b"a\nb\n") == ImportCount(0, 2)
    assert stored(tmp_path) == before


def test_a_longer_file_goes_on_after_what_is_there(tmp_path: Path) -> None:
    run_import(tmp_path, b"a\nb\n")
    assert run_import(tmp_path, b"a\nb\nc\nd\n") == ImportCount(2, 2)
    assert payloads(tmp_path) == [b"a", b"b", b"c", b"d"]


def test_a_shorter_file_is_known(tmp_path: Path) -> None:
    run_import(tmp_path, b"a\nb\n")
    assert run_import(tmp_path, b"a\n") == ImportCount(0, 1)


@pytest.mark.parametrize(("content", "line"), [(b"X\nb\nc\n", 1), (b"a\nX\nc\n", 2), (b"a\nb \nc\n", 2)])
def test_a_changed_line_is_refused_with_its_number(tmp_path: Path, content: bytes, line: int) -> None:
    run_import(tmp_path, b"a\nb\n")
    with pytest.raises(LineRefusedError) as refusal:
        run_import(tmp_path, content)
    assert refusal.value.line_number == line
    assert payloads(tmp_path) == [b"a", b"b"]


def test_a_line_that_is_too_long_is_refused_with_its_number_and_those_before_it_stay(tmp_path: Path) -> None:
    with pytest.raises(LineRefusedError) as refusal:
        run_import(tmp_path, b"a\n" + bytes(PAYLOAD_BYTES_MAX + 1) + b"\nc\n")
    assert refusal.value.line_number == 2
    assert payloads(tmp_path) == [b"a"]


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path: Path) -> None:
    class Endless(io.BytesIO):
        given = 0

        def read(self, size: int | None = -1) -> bytes:
            assert size is not None
            Endless.given += size
            assert Endless.given < 16 * PAYLOAD_BYTES_MAX
            return b"x" * size

    with open_local_log(str(tmp_path)) as log, pytest.raises(LineRefusedError):
        import_lines(
            log,
            Endless(),
            folder=str(tmp_path),
            run=RUN,
            name="endless",
            is_last_final=False,
            advance=lambda _: None,
        )


def test_only_the_last_line_is_final_and_nothing_follows_it(tmp_path: Path) -> None:
    run_import(tmp_path, b"a\nb\n", is_last_final=True)
    assert stored(tmp_path) == [(b"a", False), (b"b", True)]
    assert run_import(tmp_path, b"a\nb\n", is_last_final=True) == ImportCount(0, 2)
    with pytest.raises(LineRefusedError) as refusal:
        run_import(tmp_path, b"a\nb\nc\n", is_last_final=True)
    assert refusal.value.line_number == 2
    assert len(stored(tmp_path)) == 2


def test_a_run_that_something_else_was_appended_to_is_not_mixed_up(tmp_path: Path) -> None:
    run_import(tmp_path, b"a\n")
    with open_local_log(str(tmp_path)) as log:
        log.append(AppendRequest(RUN, (NewEvent("note", b"b"),)))
    with pytest.raises(LineRefusedError) as refusal:
        run_import(tmp_path, b"a\nb\n")
    assert refusal.value.line_number == 2
