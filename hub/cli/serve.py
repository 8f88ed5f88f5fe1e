"""``synchub serve``: the hub itself."""

from hub.cli.logs import configure_logs
from hub.cli.output import failures_told
from hub.cli.serve_options import (
    AnyoneMayConnectOption,
    BackupFolderOption,
    ChannelzOption,
    ConfigOption,
    CredentialsOption,
    DbOption,
    HttpOption,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    OtlpEndpointOption,
    TlsCertOption,
    TlsClientCaOption,
    TlsKeyOption,
    TokenFloorOption,
    TrustDomainOption,
)
from hub.config import ServeFlags, load_settings

EXAMPLES = """Examples:

  synchub serve

  synchub serve --db /var/lib/synchub/hub.db --listen 127.0.0.1:7443 --http none

  synchub serve --listen 0.0.0.0:7443 --credentials required --tls-cert hub.pem --tls-key hub.key
"""


def serve(
    *,
    db: DbOption = None,
    listen: ListenOption = None,
    http: HttpOption = None,
    credentials: CredentialsOption = None,
    anyone_may_connect: AnyoneMayConnectOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_client_ca: TlsClientCaOption = None,
    trust_domain: TrustDomainOption = None,
    backup_folder: BackupFolderOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
    otlp_endpoint: OtlpEndpointOption = None,
    config: ConfigOption = None,
    token_floor: TokenFloorOption = None,
    channelz: ChannelzOption = None,
) -> None:
    """Run the hub until SIGTERM or Ctrl-C.

    Prints one line when it is ready, with the real ports. Every setting is also an environment
    variable (SYNCHUB_LISTEN, SYNCHUB_LIMITS__PRESENCE_TTL_SECONDS, …).
    """
    # Imported only here: other commands need neither a store nor a server.
    from hub.app import serve as serve_hub
    from hub.rpc.call_record import facts_of_call

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
                log_format=log_format,
                log_level=log_level,
                otlp_endpoint=otlp_endpoint,
                config=config,
            )
        )
        configure_logs(settings.log_format, settings.log_level, facts_of_call=facts_of_call)
        serve_hub(settings)
