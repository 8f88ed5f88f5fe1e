"""The tree: where things lie, what they are called and how large they are."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("hub", "runtime_agent", "protos/synchub")
FUNCTION_LINES_MAX: Final = 70
MODULE_LINES_MAX: Final = 450
VAGUE_NAMES: Final = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
GRPC_METHODS: Final = {"unary_unary", "unary_stream", "stream_unary", "stream_stream", "with_call", "future"}
GENERATED: Final = re.compile(r"_pb2(_grpc)?\.pyi?$")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def tracked_files(*patterns: str) -> list[Path]:
    """Paths in the repository, also those that are not committed yet but not ignored either."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs git and a clone of the repository, to know what belongs to it")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    # A file that was just deleted is still listed.
    return sorted({ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()})


def written_modules(*folders: str) -> list[Path]:
    """Python modules that people wrote."""
    found = (path for path in tracked_files(*folders) if path.suffix == ".py")
    return [path for path in found if not GENERATED.search(path.name)]


def functions_of(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Function):
            yield node


def lines_of(function: Function) -> int:
    """How long it is to read: the docstring and decorators do not count."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines


def test_no_function_is_longer_than_a_page() -> None:
    too_long = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {lines_of(function)} lines"
        for path in written_modules(*PACKAGES, "scripts", "tests")
        for function in functions_of(path)
        if lines_of(function) > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_no_module_is_too_long_to_read_at_once() -> None:
    too_long = {
        str(path.relative_to(ROOT)): lines
        for path in written_modules(*PACKAGES, "scripts", "tests")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MODULE_LINES_MAX
    }
    assert too_long == {}


def test_no_name_of_a_module_is_vague() -> None:
    vague = [
        str(path.relative_to(ROOT))
        for path in written_modules(*PACKAGES, "scripts", "tests")
        if VAGUE_NAMES.intersection(re.split(r"[_/.]", str(path.relative_to(ROOT))))
    ]
    assert vague == []


def test_what_follows_the_second_argument_is_named_by_the_caller() -> None:
    positional = [
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"
        for path in written_modules(*PACKAGES)
        for function in functions_of(path)
        if positional_arguments(function) > 2
    ]
    assert positional == []


def positional_arguments(function: Function) -> int:
    # Dunder methods have the signature that Python gives them, those of a channel gRPC's.
    if function.name.startswith("__") or function.name in GRPC_METHODS:
        return 0
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    return len(names) - (bool(names) and names[0] in ("self", "cls"))


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    # Put together here, so that this file does not hold what it looks for.
    places = [bytes(f"/{folder}/", "ascii") for folder in ("work", "root", "home/[a-z]+")]
    pattern = re.compile(rb"(?<![\w.])(" + b"|".join(places) + rb")\w")
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode(errors='replace')}"
        for path in tracked_files()
        for match in pattern.finditer(path.read_bytes())
    ]
    assert found == []


@pytest.mark.parametrize("folder", ["scripts", "tests"])
def test_the_readme_of_a_folder_has_one_line_for_each_thing_in_it(folder: str) -> None:
    listed = re.findall(
        r"^\| `([\w.]+)/?` \|", (ROOT / folder / "README.md").read_text(encoding="utf-8"), re.M
    )
    inside = {path.relative_to(ROOT / folder).parts[0] for path in tracked_files(folder)}
    assert sorted(listed) == sorted(inside - {"README.md", "conftest.py", "__init__.py"})
