"""``synchub token``: who may call a hub.

Each command asks a hub (``--hub``), or does the same by itself to the store of a hub that does not run
(``--db``): so the first token is made, and so an operator gets in again who has lost the last one.
"""

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer
from google.protobuf.timestamp_pb2 import Timestamp

from hub.cli.hub_calls import (
    bare_enum_name,
    channel_to,
    enum_number,
    first_of,
    message_to_json,
    moment_text,
    pages_of,
)
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ListLimitOption,
    checked_hub_project,
    no_hub_project,
)
from hub.cli.output import CommandFailed, Json, failures_told, print_json, print_table, printable
from hub.cli.shown_credentials import given_credentials
from hub.cli.spans import parse_span
from hub.cli.token_file import token_file
from synchub.channel import UNARY_SECONDS_MAX
from synchub.v1.hub_service_pb2 import (
    CreateTokenRequest,
    CreateTokenResponse,
    GetHubInfoRequest,
    ListTokensRequest,
    RevokeTokenRequest,
    Role,
    Token,
)
from synchub.v1.hub_service_pb2_grpc import HubServiceStub

app = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens that let callers in.")

STREAMS_END_SECONDS: Final = 5
"""Within this time the streams of a revoked token have ended."""

CREATE_EXAMPLES = """Examples:

  synchub token create --db hub.db --hub-project home --role admin --name me --output me.token

  synchub token create --role runtime --name build-7 --runtime build-7 --prefix home- --expires-in 90d

The first one is made with --db, before the hub is started.
"""
LIST_EXAMPLES = """Example:

  synchub token list --hub-project home --token-file me.token
"""
REVOKE_EXAMPLES = """Example:

  synchub token revoke 0b5f1c9e2a7d4c6b8e01 --token-file me.token
"""

DbOption = Annotated[
    str,
    typer.Option(
        "--db",
        metavar="FILE",
        help="Do it to this store, which no hub serves now, instead of asking a hub.",
    ),
]


@app.command("create", epilog=CREATE_EXAMPLES)
def create(
    *,
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="What its bearer may do: runtime, reader, operator or admin.")
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="What people shall call it.")],
    runtime: Annotated[
        str, typer.Option(metavar="R", help="The only runtime that its bearer may be; for the role runtime.")
    ] = "",
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PREFIX",
            help="It is for projects whose ids begin so; may be given again. Without it for all.",
        ),
    ] = None,
    expires_in: Annotated[
        str, typer.Option(metavar="SPAN", help="After how long it ends, such as 90d. Without it never.")
    ] = "",
    output: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Write the token to this new file of mode 0600, not to the screen."
        ),
    ] = "",
    db: DbOption = "",
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Make a token. It is shown this once: the hub keeps only a hash of it."""
    with failures_told():
        request = CreateTokenRequest(
            hub_project=_hub_project(hub_project, db=db),
            display_name=name,
            role=enum_number(role, Role, flag="--role"),
            runtime_id=runtime,
            project_id_prefixes=prefix or (),
            ttl=parse_span(expires_in, flag="--expires-in"),
        )
        with token_file(Path(output).expanduser()) if output else nullcontext() as write:
            made = _created(request, db=db, hub=hub)
            if write is not None:
                try:
                    write(made.bearer_token)
                except OSError as error:
                    sentence = f"cannot write {output}: {error.strerror}"
                    hint = f"Revoke token {made.token.token_id}, which nobody has now."
                    raise CommandFailed(sentence, hint=hint) from error
    _print_created(made, output=output, is_json=is_json)
    if not db and not given_credentials().identifies:
        typer.echo("The hub asked for no credential: it lets anybody in until it is started again.", err=True)


@app.command("list", epilog=LIST_EXAMPLES)
def list_tokens(
    *,
    limit: ListLimitOption = 100,
    db: DbOption = "",
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """List the tokens of a hub project, those too that are over; no secrets."""
    with failures_told():
        request = ListTokensRequest(hub_project=_hub_project(hub_project, db=db))
    if db:
        from hub.cli.offline_tokens import listed

        with failures_told():
            found, now = listed(db, request)
            _print_tokens(first_of(found, limit), now=now, is_json=is_json)
        return
    with channel_to(hub) as channel:
        stub = HubServiceStub(channel)
        now = stub.GetHubInfo(GetHubInfoRequest(), timeout=UNARY_SECONDS_MAX).hub_time
        pages = pages_of(
            lambda request, timeout: stub.ListTokens(request, timeout=timeout), request, entries_max=limit
        )
        tokens = (token for page in pages for token in page.tokens)
        _print_tokens(first_of(tokens, limit), now=now, is_json=is_json)


@app.command("revoke", epilog=REVOKE_EXAMPLES)
def revoke(
    *,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as 'list' shows it.")],
    db: DbOption = "",
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Take a token back for good: its calls are refused and its streams end."""
    with failures_told():
        request = RevokeTokenRequest(hub_project=_hub_project(hub_project, db=db), token_id=token_id)
    if db:
        from hub.cli.offline_tokens import revoked

        with failures_told():
            token = revoked(db, request)
    else:
        with channel_to(hub) as channel:
            token = HubServiceStub(channel).RevokeToken(request, timeout=UNARY_SECONDS_MAX).token
    if is_json:
        print_json(_token_to_json(token, now=token.revoke_time))
        return
    streams = "" if db else f"; its streams end within {STREAMS_END_SECONDS} s"
    print(f"{token.token_id} ({printable(token.display_name)}) is revoked{streams}")


def _hub_project(hub_project: str, *, db: str) -> str:
    """Return the hub project that is meant; a store by itself knows no caller's own.

    Raises: CommandFailed.
    """
    if db and not hub_project:
        raise no_hub_project("no hub project is given")
    return checked_hub_project(hub_project)


def _created(request: CreateTokenRequest, *, db: str, hub: str) -> CreateTokenResponse:
    if db:
        from hub.cli.offline_tokens import created

        return created(db, request)
    with channel_to(hub) as channel:
        return HubServiceStub(channel).CreateToken(request, timeout=UNARY_SECONDS_MAX)


def _print_created(made: CreateTokenResponse, *, output: str, is_json: bool) -> None:
    """Print the new token: alone on standard output, so that a program can take it; the rest beside it."""
    token = made.token
    if is_json:
        shown: dict[str, Json] = {**_token_to_json(token, now=token.create_time)}
        print_json({**shown, **({"output": output} if output else {"bearer_token": made.bearer_token})})
        return
    ends = f"until {moment_text(token.expire_time)} UTC" if token.HasField("expire_time") else "for good"
    role = bare_enum_name(Role.DESCRIPTOR, token.role).lower()
    whose = f"{token.token_id} ({printable(token.display_name)}, {role} of {printable(token.hub_project)})"
    if output:
        print(f"{whose} is valid {ends}; it is in {output}")
        return
    typer.echo(f"{whose} is valid {ends}. It is shown this once:", err=True)
    print(made.bearer_token)


def _print_tokens(tokens: Iterable[Token], *, now: Timestamp, is_json: bool) -> None:
    if is_json:
        for token in tokens:
            print_json(_token_to_json(token, now=now))
        return
    rows = (
        [
            token.token_id,
            token.display_name,
            bare_enum_name(Role.DESCRIPTOR, token.role).lower(),
            _state(token, now),
            token.runtime_id or "any" if token.role == Role.ROLE_RUNTIME else "",
            " ".join(token.project_id_prefixes) or "all",
            moment_text(token.create_time),
            moment_text(token.expire_time) if token.HasField("expire_time") else "never",
        ]
        for token in tokens
    )
    columns = ["ID", "NAME", "ROLE", "STATE", "RUNTIME", "PROJECTS", "MADE (UTC)", "EXPIRES (UTC)"]
    print_table(columns, rows, empty="no tokens")


def _token_to_json(token: Token, *, now: Timestamp) -> dict[str, Json]:
    return {**message_to_json(token), "state": _state(token, now)}


def _state(token: Token, now: Timestamp) -> str:
    if token.HasField("revoke_time"):
        return "revoked"
    is_over = token.HasField("expire_time") and token.expire_time.ToNanoseconds() <= now.ToNanoseconds()
    return "expired" if is_over else "live"
