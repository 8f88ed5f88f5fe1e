"""``synchub serve``: the hub itself."""

import os
from typing import Annotated

import typer

from hub.cli.logs import configure_logs
from hub.cli.output import failures_told
from hub.config import DEFAULT_HTTP, DEFAULT_LISTEN, ServeFlags, load_settings

EXAMPLES = """Examples:

  synchub serve

  synchub serve --db /var/lib/synchub/hub.db --listen 127.0.0.1:7443 --http none

  synchub serve --listen 0.0.0.0:7443 --credentials required --tls-cert hub.pem --tls-key hub.key
"""


def serve(
    *,
    db: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="The store: a file, made where it is not there. Default: in your data folder.",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help=f"Where runtimes connect; port 0 for any. [{DEFAULT_LISTEN}]"),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Where /healthz, /readyz and /metrics are; 'none' for nowhere. [{DEFAULT_HTTP}]",
        ),
    ] = None,
    credentials: Annotated[
        str | None,
        typer.Option(
            metavar="auto|required|none",
            help="Whether callers need a token or a client certificate; auto: once there is any. [auto]",
        ),
    ] = None,
    anyone_may_connect: Annotated[
        bool | None,
        typer.Option(
            "--anyone-may-connect",
            help="Listen beyond loopback without credentials: whoever reaches the hub may do everything.",
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="TLS on both ports: the hub's certificate chain (PEM), re-read."),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="The key of the certificate (PEM), re-read with it.")
    ] = None,
    tls_client_ca: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Ask every client of --listen for a certificate that one of these authorities signed.",
        ),
    ] = None,
    trust_domain: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="TRUST in spiffe://TRUST/hub-project/P/runtime/R of these."),
    ] = None,
    backup_folder: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where 'synchub backup' writes. Default: nowhere.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(metavar="FILE", help="Settings as TOML; flags and environment win.")
    ] = None,
    token_floor: Annotated[
        str | None,
        typer.Option(
            metavar="now",
            help="For a new, empty store in place of a lost one: tokens begin above any given before.",
        ),
    ] = None,
    channelz: Annotated[
        bool | None, typer.Option("--channelz", help="Also serve gRPC's own view of its connections.")
    ] = None,
) -> None:
    """Run the hub until SIGTERM or Ctrl-C.

    Prints one line when it is ready, with the real ports. Every setting is also an environment
    variable (SYNCHUB_LISTEN, SYNCHUB_LIMITS__PRESENCE_TTL_SECONDS, …).
    """
    # Its own log would let strangers write lines of their choice: it has the names that they ask for at
    # handshakes. What matters to the hub are its calls' ends, which it sees itself.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Imported only here: other commands need neither a store nor a server.
    from hub.app import serve as serve_hub

    with failures_told():
        settings = load_settings(
            ServeFlags(
                db=db,
                listen=listen,
                http=http,
                channelz=channelz,
                token_floor=token_floor,
                credentials=credentials,
                anyone_may_connect=anyone_may_connect,
                tls_cert=tls_cert,
                tls_key=tls_key,
                tls_client_ca=tls_client_ca,
                trust_domain=trust_domain,
                backup_folder=backup_folder,
                config=config,
            )
        )
        configure_logs()
        serve_hub(settings)
