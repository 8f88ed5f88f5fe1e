"""The options that several commands share, and how their values are read."""

import os
import re
from datetime import UTC, datetime
from typing import Annotated, Final

import typer

from runtime_agent import limits
from runtime_agent.config import ENVIRONMENT_PREFIX, load_settings
from runtime_agent.core.errors import UsageError

DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help=f"Data folder of the agent; also {ENVIRONMENT_PREFIX}DATA. Default: the user's data folder.",
    ),
]
_SHOWN_PANEL: Final = "Credentials and TLS"
TokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Show the token that is this file's only line.",
        rich_help_panel=_SHOWN_PANEL,
    ),
]
CaFileOption = Annotated[
    str | None,
    typer.Option(
        "--ca-file",
        metavar="FILE",
        help="Trust a hub whose certificate these authorities (PEM) signed.",
        rich_help_panel=_SHOWN_PANEL,
    ),
]
CertFileOption = Annotated[
    str | None,
    typer.Option(
        "--cert-file",
        metavar="FILE",
        help="Show this certificate (PEM).",
        rich_help_panel=_SHOWN_PANEL,
    ),
]
KeyFileOption = Annotated[
    str | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="The key of --cert-file (PEM).",
        rich_help_panel=_SHOWN_PANEL,
    ),
]
TlsOption = Annotated[
    bool | None,
    typer.Option(
        "--tls",
        help="Speak TLS and trust the system's authorities. Each of these files but the token means TLS too.",
        rich_help_panel=_SHOWN_PANEL,
    ),
]
ProjectOption = Annotated[str, typer.Option("--project", metavar="P", help="Project of the run.")]
RunOption = Annotated[str, typer.Option("--run", metavar="N", help="The run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
WaitOption = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.0,
        max=600.0,
        help="How long to wait while another program holds the data folder.",
    ),
]

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


def data_folder(data: str | None) -> str:
    """Return the data folder: the flag, else environment, else file, else the user's."""
    return os.path.expanduser(data) if data else os.path.expanduser(load_settings({}).data)


def time_to_nanos(text: str) -> int:
    """Return an RFC 3339 time as nanoseconds since 1970. Raises: UsageError."""
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        moment = datetime.fromisoformat(match[1].upper() + match[3].upper().replace("Z", "+00:00"))
    except ValueError as error:
        raise UsageError(
            f"the time {text!r} is not RFC 3339; it looks like 2026-01-31T23:59:59.123456789Z"
        ) from error
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = since.days * 86_400 + since.seconds
    return seconds * limits.NANOS_PER_SECOND + int((match[2] or "0").ljust(9, "0"))


def nanos_to_time(nanos: int) -> str:
    """Return nanoseconds since 1970 as RFC 3339, or as a number where no calendar reaches."""
    seconds, rest = divmod(nanos, limits.NANOS_PER_SECOND)
    try:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"{nanos} ns"
    return f"{text}.{rest:09d}Z" if rest else f"{text}Z"


def attributes_from_pairs(pairs: list[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` pairs as attributes. Raises: UsageError."""
    attributes: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"the attribute {pair!r} is not KEY=VALUE")
        if key in attributes:
            raise UsageError(f"the attribute {key!r} is given twice")
        attributes[key] = value
    return attributes
