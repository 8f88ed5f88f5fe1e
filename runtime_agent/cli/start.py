"""``runtime-agent start``: the agent itself."""

import os
from typing import Annotated

import typer

from runtime_agent.cli.options import (
    CaFileOption,
    CertFileOption,
    DataOption,
    KeyFileOption,
    TlsOption,
    TokenFileOption,
    attributes_from_pairs,
)
from runtime_agent.config import StartSettings, load_settings
from runtime_agent.core.errors import UsageError
from runtime_agent.core.values import RuntimeIdentity
from synchub.channel import AddressError, HubAddress, parse_addresses
from synchub.contract import attributes_fault, identifier_fault
from synchub.credentials import Credentials, CredentialsError, CredentialSource


def start(
    *,
    hub: Annotated[
        str | None, typer.Option("--hub", metavar="ADDR[,ADDR…]", help="Where the hub listens, HOST:PORT.")
    ] = None,
    data: DataOption = None,
    hub_project: Annotated[
        str | None, typer.Option("--hub-project", metavar="P", help="The tenant on the hub.")
    ] = None,
    runtime_id: Annotated[
        str | None,
        typer.Option("--runtime-id", metavar="R", help="The runtime; each needs a data folder of its own."),
    ] = None,
    token_file: TokenFileOption = None,
    ca_file: CaFileOption = None,
    cert_file: CertFileOption = None,
    key_file: KeyFileOption = None,
    tls: TlsOption = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", help="Wait for another process that holds the folder."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Shown by the hub; may be given several times."),
    ] = None,
) -> None:
    """Run the agent: serve local programs, and sync the local log with the hub.

    It works with no hub in sight and goes on by itself when the hub comes back. The first start
    pins hub project and runtime id in the data folder. Token and certificates are read again when
    their files change, without a restart.

    Settings come from these flags, then RUNTIME_AGENT_… variables, then a TOML file
    (RUNTIME_AGENT_CONFIG, by default ~/.config/synchub/runtime-agent.toml).

    Example:

      runtime-agent start --hub 127.0.0.1:7443 --hub-project demo --runtime-id laptop-1
    """
    settings = load_settings(
        {
            "hub": hub,
            "data": data,
            "hub_project": hub_project,
            "runtime_id": runtime_id,
            "token_file": token_file,
            "ca_file": ca_file,
            "cert_file": cert_file,
            "key_file": key_file,
            "tls": tls,
            "wait_seconds": wait,
            "labels": attributes_from_pairs(label) if label else None,
        }
    )
    # Only this command needs the side towards the hub, which takes a while to import.
    from runtime_agent.agent import AgentSettings, run_agent

    run_agent(
        AgentSettings(
            hub_addresses=_hub_addresses(settings.hub),
            folder=os.path.expanduser(settings.data),
            identity=_identity(settings),
            credentials=credentials_from(settings),
            labels=_labels(settings),
            retention_seconds=settings.retention_seconds,
            log_bytes_max=settings.log_bytes_max,
            lock_wait_seconds=settings.wait_seconds,
        )
    )


def _hub_addresses(text: str) -> tuple[HubAddress, ...]:
    if not text:
        raise UsageError("--hub is needed: where the hub listens, such as 127.0.0.1:7443")
    try:
        return parse_addresses(text)
    except AddressError as error:
        raise UsageError(str(error)) from error


def _identity(settings: StartSettings) -> RuntimeIdentity:
    for name, value in (("--hub-project", settings.hub_project), ("--runtime-id", settings.runtime_id)):
        if not value:
            raise UsageError(f"{name} is needed")
        fault = identifier_fault(value)
        if fault is not None:
            raise UsageError(f"{name} {fault}")
    return RuntimeIdentity(settings.hub_project, settings.runtime_id)


def credentials_from(settings: StartSettings) -> CredentialSource:
    """Return what the agent shows and trusts; its files are read. Raises: UsageError."""
    try:
        return CredentialSource(
            Credentials(
                token_file=os.path.expanduser(settings.token_file),
                ca_file=os.path.expanduser(settings.ca_file),
                certificate_file=os.path.expanduser(settings.cert_file),
                key_file=os.path.expanduser(settings.key_file),
                is_tls=settings.tls,
            )
        )
    except CredentialsError as error:
        raise UsageError(str(error)) from error


def _labels(settings: StartSettings) -> dict[str, str]:
    fault = attributes_fault(settings.labels)
    if fault is not None:
        raise UsageError(f"labels {fault}")
    return settings.labels
