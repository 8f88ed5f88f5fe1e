"""The options of ``synchub serve``: each is a setting, and is said in a sentence."""

from typing import Annotated

import typer

from hub.config import DEFAULT_HTTP, DEFAULT_LISTEN

DbOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="The store: a file, made where it is not there. Default: in your data folder.",
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help=f"Where runtimes connect; port 0 for any. [{DEFAULT_LISTEN}]"),
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help=f"Where /healthz, /readyz and /metrics are; 'none' for nowhere. [{DEFAULT_HTTP}]",
    ),
]
CredentialsOption = Annotated[
    str | None,
    typer.Option(
        metavar="auto|required|none",
        help="Whether callers need a token or a client certificate; auto, the default: once there is any.",
    ),
]
AnyoneMayConnectOption = Annotated[
    bool | None,
    typer.Option(
        "--anyone-may-connect",
        help="Listen beyond loopback without credentials: whoever reaches the hub may do everything.",
    ),
]
TlsCertOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="TLS on both ports: the hub's certificate chain (PEM), re-read."),
]
TlsKeyOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="The key of the certificate (PEM), re-read with it.")
]
TlsClientCaOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Ask every client of --listen for a certificate that one of these authorities signed.",
    ),
]
TrustDomainOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="TRUST in spiffe://TRUST/hub-project/P/runtime/R of these."),
]
BackupFolderOption = Annotated[
    str | None, typer.Option(metavar="DIR", help="Where 'synchub backup' writes. Default: nowhere.")
]
LogFormatOption = Annotated[
    str | None,
    typer.Option(
        metavar="auto|json|console", help="The log: for people on a terminal, JSON elsewhere. Default: auto."
    ),
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(
        metavar="debug|info|warning|error", help="What is logged, and what is worse. Default: info."
    ),
]
OtlpEndpointOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where traces go, such as http://127.0.0.1:4317 (OTLP over gRPC); needs the extra 'otel'."
        " Default: OTEL_EXPORTER_OTLP_ENDPOINT, else nowhere.",
    ),
]
ConfigOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Settings as TOML; flags and environment win.")
]
TokenFloorOption = Annotated[
    str | None,
    typer.Option(
        metavar="now",
        help="For a new, empty store in place of a lost one: tokens begin above any given before.",
    ),
]
ChannelzOption = Annotated[
    bool | None, typer.Option("--channelz", help="Also serve gRPC's own view of its connections.")
]
