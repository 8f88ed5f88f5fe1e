"""SQL in named files: each statement has a name and a sentence above it.

A file is a sequence of statements, each begun by ``-- name: NAME`` and a comment of at least one line
that says what it does.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

_NAME_LINE = re.compile(r"^-- name: (?P<name>[a-z0-9_]+)$", re.MULTILINE)


def load_statements(package: str, *file_names: str) -> Mapping[str, str]:
    """Return name → SQL of all statements in these files of a package.

    Raises: ValueError where a statement has no sentence above it or a name stands twice.
    """
    statements: dict[str, str] = {}
    for file_name in file_names:
        text = (files(package) / file_name).read_text(encoding="utf-8")
        for name, statement in statements_in(text).items():
            if name in statements:
                raise ValueError(f"{file_name}: the statement {name} stands twice")
            statements[name] = statement
    return statements


def statements_in(text: str) -> dict[str, str]:
    """Return name → SQL of the statements in a text, comments and the closing semicolon left out."""
    parts = _NAME_LINE.split(text)
    statements: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = body.strip().splitlines()
        if not lines or not lines[0].startswith("-- "):
            raise ValueError(f"the statement {name} has no sentence above it")
        code = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if name in statements:
            raise ValueError(f"the statement {name} stands twice")
        statements[name] = code.removesuffix(";")
    return statements


def load_migrations(package: str) -> list[tuple[int, str]]:
    """Return (number, script) of the migrations of a package, ascending from 1 without a gap."""

    def number_of(entry: Traversable) -> int:
        return int(entry.name.split("_")[0])

    entries = [entry for entry in files(package).iterdir() if entry.name.endswith(".sql")]
    migrations = [
        (number_of(entry), entry.read_text(encoding="utf-8")) for entry in sorted(entries, key=number_of)
    ]
    if [number for number, _ in migrations] != list(range(1, len(migrations) + 1)):
        raise ValueError(f"the migrations of {package} are not numbered 1, 2, 3 …")
    return migrations
