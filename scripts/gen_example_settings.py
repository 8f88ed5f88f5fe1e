"""Writes the section ``[limits]`` of ``docs/deploy/hub.toml``: every bound, its default, and what it bounds.

The defaults and the words are those of ``hub/core/limits.py``. What stands above the section is written by
people.

    .venv/bin/python scripts/gen_example_settings.py            write it
    .venv/bin/python scripts/gen_example_settings.py --check    exit 1 where it is stale, write nothing
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from hub.core.limits import Limits

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "deploy" / "hub.toml"
SECTION = "[limits]\n"
COLUMNS_MAX = 110


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the bounds into the example settings.")
    parser.add_argument("--check", action="store_true", help="compare with what is there, write nothing")
    check = bool(parser.parse_args().check)
    present = EXAMPLE.read_text(encoding="utf-8")
    fresh = present[: present.index(SECTION)] + SECTION + "".join(lines_of_limits())
    if check and fresh != present:
        print(f"{EXAMPLE} is stale; run scripts/gen_example_settings.py and commit", file=sys.stderr)
        return 1
    if not check:
        EXAMPLE.write_text(fresh, encoding="utf-8")
    return 0


def lines_of_limits() -> Iterator[str]:
    """The lines of the section, each commented out."""
    words = words_of_limits()
    was_explained = False
    for each in fields(Limits):
        default, is_explained = getattr(Limits(), each.name), each.name in words
        if is_explained or was_explained:
            yield "\n"
        was_explained = is_explained
        if is_explained:
            for line in textwrap.wrap(words[each.name], COLUMNS_MAX - 3):
                yield f"## {line}\n"
        yield f"# {each.name} = {toml_value(default)}\n"


def words_of_limits() -> Mapping[str, str]:
    """What the class says of its fields, on one line each."""
    (definition,) = ast.parse(inspect.getsource(Limits)).body
    assert isinstance(definition, ast.ClassDef)
    words: dict[str, str] = {}
    for field, after in zip(definition.body, definition.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            words[field.target.id] = " ".join(str(after.value.value).split())
    return words


def toml_value(default: object) -> str:
    """How a default is written in TOML."""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int):
        return f"{default:_}"
    assert isinstance(default, float)
    return repr(default)


if __name__ == "__main__":
    sys.exit(main())
