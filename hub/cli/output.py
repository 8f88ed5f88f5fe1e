"""How commands speak: tables for people, JSON lines for programs, one sentence where something failed."""

import asyncio
import errno
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

import grpc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hub.config import SettingsError
from hub.core.errors import StartRefused
from synchub.channel import AddressError, HubAddress, Refusal, explain, refusal_from_error
from synchub.credentials import CredentialsError

EXIT_FAILED: Final = 1
"""Refused or failed, with a sentence on standard error."""
EXIT_USAGE: Final = 2
"""Wrong usage."""
EXIT_INTERRUPTED: Final = 130
"""Ended by Ctrl-C."""

_WIDTH_MAX: Final = 10_000

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
"""What can be printed as JSON."""


class CommandFailed(Exception):
    """A command cannot be done; its text is a sentence for the person who gave it."""

    def __init__(self, sentence: str, *, hint: str = "", exit_code: int = EXIT_FAILED) -> None:
        """Keep the sentence, what to do about it, and the exit code."""
        super().__init__(sentence)
        self.hint = hint
        self.exit_code = exit_code


@contextmanager
def failures_told(addresses: Sequence[HubAddress] = ()) -> Iterator[None]:
    """Turn whatever can go wrong into one sentence on standard error and an exit code.

    ``addresses`` are the hubs that the block talks to. What is not expected passes through: it is a
    fault of the program.
    """
    try:
        yield
    except grpc.RpcError as error:
        fail_refused(refusal_from_error(error), addresses)
    except AddressError as error:
        fail(str(error), exit_code=EXIT_USAGE)
    except CredentialsError as error:
        fail(printable(str(error)), exit_code=EXIT_USAGE)
    except SettingsError as error:
        fail(str(error), exit_code=EXIT_USAGE)
    except StartRefused as error:
        fail(error.sentence, hint=error.hint)
    except CommandFailed as error:
        fail(str(error), hint=error.hint, exit_code=error.exit_code)
    except UnicodeEncodeError as error:
        if error.encoding != "utf-8":
            raise
        # A word of the command line whose bytes are no text.
        fail(f"{error.object!r} is not UTF-8", exit_code=EXIT_USAGE)
    except BrokenPipeError:
        _give_up_output()
        sys.exit(EXIT_FAILED)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        _give_up_output()
        fail(f"cannot write the output: {error.strerror}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(EXIT_INTERRUPTED)


def _give_up_output() -> None:
    """Send standard output nowhere: whoever took it takes no more, and the interpreter flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(sentence: str, *, hint: str = "", exit_code: int = EXIT_FAILED) -> NoReturn:
    """Say what is wrong on standard error and end the process."""
    text = f"synchub: {sentence.rstrip('.')}"
    print(f"{text}\n  {hint}" if hint else text, file=sys.stderr)
    sys.exit(exit_code)


def fail_refused(refusal: Refusal, addresses: Sequence[HubAddress]) -> NoReturn:
    """Say a refusal and end the process. It may name what others chose: it steers no terminal."""
    fail(printable(explain(refusal, addresses)), hint=_refusal_hint(refusal))


def _refusal_hint(refusal: Refusal) -> str:
    """Return what to do about a refusal of a credential; "" for other refusals."""
    if refusal.reason == "IDENTITY_MISMATCH":
        return "What a credential is for counts: leave --hub-project out, or show another credential."
    if refusal.code is grpc.StatusCode.UNAUTHENTICATED:
        return "Show a token with --token-file FILE, or a certificate with --cert-file and --key-file."
    return ""


def print_json(value: Json) -> None:
    """Print a value as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


_WHOLE_COLUMNS: Final = frozenset(("ALERT", "ID", "ROLE", "STATE", "TOKEN", "EXPIRES"))
"""Short words, and ids to be copied: nobody can read them in pieces; other columns make room for them."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, empty: str) -> None:
    """Print rows for people; ``empty`` is the sentence where there are none.

    What stands in cells is shown as it is, control characters escaped: it may come from anybody.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in _WHOLE_COLUMNS)
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    console = _console()
    if table.row_count == 0:
        console.print(empty, highlight=False)
    else:
        console.print(table)


def print_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Print names with their values, one a line."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, escape(printable(value)))
    _console().print(table)


def _console() -> Console:
    """Return standard output; where it is no terminal nothing is folded, so that a row is one line."""
    is_folded = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console() if is_folded else Console(width=_WIDTH_MAX)


def printable(text: str) -> str:
    """Return a text without anything that could steer a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
