"""What the commands that ask a hub show to it, and whom they trust: options that all of them take.

They are added to each command that has ``--hub``, in one place, once all commands are there; a command
itself knows nothing of them. ``hub_calls.channel_to`` finds here what was given.
"""

import functools
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Final, Protocol, cast, get_args

import typer
from typer.models import OptionInfo

from hub.cli.output import failures_told
from hub.config import ENVIRONMENT_PREFIX
from synchub.credentials import NO_CREDENTIALS, Credentials, CredentialSource

TOKEN_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}TOKEN"
"""Holds a token itself. No option does: other users of the machine can see a command's arguments."""
_PANEL: Final = "Credentials and TLS"


class Command(Protocol):
    """What typer calls with a command's options."""

    def __call__(self, **options: object) -> object: ...


_given: ContextVar[Credentials] = ContextVar("given_credentials", default=NO_CREDENTIALS)
_source: ContextVar[CredentialSource | None] = ContextVar("credential_source", default=None)


def given_credentials() -> Credentials:
    """Return what the running command shows and trusts."""
    return _given.get()


def credential_source() -> CredentialSource:
    """Return what the files of these say now, the same for all that the running command does.

    Raises: CredentialsError.
    """
    source = _source.get()
    if source is None:
        source = CredentialSource(_given.get())
        _source.set(source)
    return source


@contextmanager
def credentials_given(credentials: Credentials) -> Iterator[None]:
    """Let a block show and trust these."""
    before, source_before = _given.set(credentials), _source.set(None)
    try:
        yield
    finally:
        _given.reset(before)
        _source.reset(source_before)


def _file_option(name: str, help_text: str) -> inspect.Parameter:
    option: OptionInfo = typer.Option(
        f"--{name.replace('_', '-')}",
        metavar="FILE",
        envvar=f"{ENVIRONMENT_PREFIX}{name.upper()}",
        help=help_text,
        rich_help_panel=_PANEL,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, option]
    )


_TLS_OPTION: Final[OptionInfo] = typer.Option(
    "--tls",
    envvar=f"{ENVIRONMENT_PREFIX}TLS",
    help="Speaks TLS and trusts the system's authorities. Each of these files but the token means TLS too.",
    rich_help_panel=_PANEL,
)
_OPTIONS: Final = (
    _file_option(
        "token_file",
        f"Shows the token that is this file's only line. Without it, the one in {TOKEN_VARIABLE}.",
    ),
    _file_option("ca_file", "Trusts a hub whose certificate these authorities (PEM) signed."),
    _file_option("cert_file", "Shows this certificate (PEM)."),
    _file_option("key_file", "The key of --cert-file (PEM)."),
    inspect.Parameter(
        "tls", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, _TLS_OPTION]
    ),
)
"""The parameters that commands are given."""


def add_credential_options(app: typer.Typer) -> None:
    """Give each command that has ``--hub``, of this app and of those in it, the options.

    Call it after the last command was registered.
    """
    for command in app.registered_commands:
        if command.callback is not None and _asks_a_hub(command.callback):
            command.callback = _with_credentials(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_credential_options(group.typer_instance)


def _asks_a_hub(command: Command) -> bool:
    """Whether it has ``--hub``; a command that was given the options already does not need them again."""
    parameters = inspect.signature(command, eval_str=True).parameters
    annotated = (get_args(parameter.annotation) for parameter in parameters.values())
    options = (each for parts in annotated for each in parts if isinstance(each, OptionInfo))
    # A name stands first in what an option is declared with, where a default may stand too.
    return "token_file" not in parameters and any(
        "--hub" in (option.default, *(option.param_decls or ())) for option in options
    )


def _with_credentials(command: Command) -> Command:
    """Return the command with the options, which it is run with and does not see."""

    @functools.wraps(command)
    def run(
        *, token_file: str, ca_file: str, cert_file: str, key_file: str, tls: bool, **others: object
    ) -> object:
        with failures_told():
            credentials = Credentials(
                token="" if token_file else os.environ.get(TOKEN_VARIABLE, "").strip(),
                token_file=os.path.expanduser(token_file),
                ca_file=os.path.expanduser(ca_file),
                certificate_file=os.path.expanduser(cert_file),
                key_file=os.path.expanduser(key_file),
                is_tls=tls,
            )
        with credentials_given(credentials):
            return command(**others)

    signature = inspect.signature(command, eval_str=True)
    # typer reads both to know the options of a command.
    parameters = [*signature.parameters.values(), *_OPTIONS]
    run.__dict__["__signature__"] = signature.replace(parameters=parameters)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return cast(Command, run)
