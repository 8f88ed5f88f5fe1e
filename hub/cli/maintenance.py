"""``synchub leases maintenance``: takes a resource out of use, and gives it back.

``begin``, ``renew`` and ``finish`` are for a person who works in between; the secret lies in a file
(``credential_file``). ``hold`` is for one command or one terminal (``maintenance_hold``).
"""

import hashlib
from pathlib import Path
from typing import Annotated

import grpc
import typer

from hub.cli import credential_file, maintenance_hold
from hub.cli.hub_calls import channel_to, message_to_json, moment_text
from hub.cli.operators import RUNTIME_ID, HolderOption, default_holder
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    ResourceArgument,
    checked_hub_project,
    hub_addresses,
    no_hub_project,
)
from hub.cli.output import CommandFailed, print_json, printable
from hub.cli.reconnecting import PASSING_REASONS
from hub.cli.spans import parse_span, span_text
from synchub.channel import UNARY_SECONDS_MAX, explain, refusal_from_error
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.lease_service_pb2 import (
    BeginMaintenanceRequest,
    BeginMaintenanceResponse,
    FinishMaintenanceRequest,
    LeaseCredential,
    RenewMaintenanceRequest,
    RenewMaintenanceResponse,
)
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

app = typer.Typer(no_args_is_help=True, help="Take a resource out of use, and give it back.")
app.command("hold", epilog=maintenance_hold.EXAMPLES)(maintenance_hold.hold)

BEGIN_EXAMPLES = """Examples:

  synchub leases maintenance begin garden-db --hub-project demo

  synchub leases maintenance begin garden-db --hub-project demo --ttl 1h --credential db.json
"""
RENEW_EXAMPLES = """Example:

  synchub leases maintenance renew garden-db --hub-project demo --ttl 30m
"""
FINISH_EXAMPLES = """Examples:

  synchub leases maintenance finish garden-db --hub-project demo

  synchub leases maintenance finish garden-db --hub-project demo --credential db.json
"""

CredentialOption = Annotated[
    Path | None,
    typer.Option(
        "--credential",
        metavar="FILE",
        help="Where the secret lies that `begin` makes. Default: a file in your folder for state.",
    ),
]


@app.command("begin", epilog=BEGIN_EXAMPLES)
def begin(
    *,
    resource: ResourceArgument,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="SPAN", help="It ends by itself after that, 1s to 1h.")
    ] = "30m",
    holder: HolderOption = "",
    credential: CredentialOption = None,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Take a resource out of use: its lease ends at once, and nobody gets one until `finish`.

    It ends by itself after --ttl unless `renew` comes before. What these two need is kept in a file that
    only you can read. Given again, `begin` goes on with the same maintenance.
    """
    span = parse_span(ttl, flag="--ttl")
    with channel_to(hub) as channel:
        tenant = checked_hub_project(hub_project)
        path = credential or _default_path(channel, tenant, resource=resource)
        request = BeginMaintenanceRequest(
            hub_project=tenant,
            resource=resource,
            runtime_id=RUNTIME_ID,
            holder_id=holder or default_holder(),
            ttl=span,
        )
        begun = _begin(LeaseServiceStub(channel), request, path=path, hub=hub)
        credential_file.write(path, begun.credential)
        token = begun.credential.fencing_token
        if is_json:
            facts = message_to_json(begun)
            del facts["credential"]  # it has the secret
            print_json({"resource": resource, "fencing_token": token, **facts, "credential_file": str(path)})
            return
        _print_until(resource, f"epoch {begun.epoch}, token {token}", answer=begun)
        if span is not None and begun.ttl.ToNanoseconds() < span.ToNanoseconds():
            print("that is the longest the hub grants at a time: renew it before, or use `hold`")
        print(printable(f"the credential for `renew` and `finish` is in {path}"))


@app.command("renew", epilog=RENEW_EXAMPLES)
def renew(
    *,
    resource: ResourceArgument,
    ttl: Annotated[
        str,
        typer.Option(
            "--ttl", metavar="SPAN", help="It ends by itself that long from now. Default: as before."
        ),
    ] = "",
    credential: CredentialOption = None,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Move the moment away at which a maintenance ends by itself."""
    span = parse_span(ttl, flag="--ttl")
    with channel_to(hub) as channel:
        tenant = checked_hub_project(hub_project)
        path = credential or _default_path(channel, tenant, resource=resource)
        request = RenewMaintenanceRequest(
            hub_project=tenant, credential=_kept_credential(path, resource), ttl=span
        )
        renewed = _renew(LeaseServiceStub(channel), request, resource=resource)
        if is_json:
            print_json({"resource": resource, **message_to_json(renewed)})
        else:
            _print_until(resource, f"epoch {renewed.epoch}", answer=renewed)


def _renew(
    stub: LeaseServiceStub, request: RenewMaintenanceRequest, *, resource: str
) -> RenewMaintenanceResponse:
    """Renew a maintenance. Raises: CommandFailed where it has ended by itself."""
    try:
        return stub.RenewMaintenance(request, timeout=UNARY_SECONDS_MAX)
    except grpc.RpcError as error:
        if refusal_from_error(error).reason != "LEASE_EXPIRED":
            raise
        sentence = printable(f"the maintenance of {resource} has ended by itself: it was not renewed in time")
        raise CommandFailed(
            sentence, hint="Others may have used the resource since; `begin` takes it again."
        ) from error


@app.command("finish", epilog=FINISH_EXAMPLES)
def finish(
    *,
    resource: ResourceArgument,
    delete_state: Annotated[
        bool, typer.Option("--delete-state", help="Also forget labels and flags of the last lease.")
    ] = False,
    credential: CredentialOption = None,
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Give a resource back, also after the maintenance ended by itself. Tokens go on where they were."""
    with channel_to(hub) as channel:
        tenant = checked_hub_project(hub_project)
        path = credential or _default_path(channel, tenant, resource=resource)
        kept = _kept_credential(path, resource)
        # The same for the same command: where the answer got lost, giving it again tells it.
        call = f"{kept.nonce} {delete_state}"
        request = FinishMaintenanceRequest(
            request_id=f"finish-{hashlib.sha256(call.encode()).hexdigest()[:32]}",
            hub_project=tenant,
            credential=kept,
            delete_state=delete_state,
        )
        finished = LeaseServiceStub(channel).FinishMaintenance(request, timeout=UNARY_SECONDS_MAX)
        credential_file.remove(path)
        if is_json:
            print_json({"resource": resource, **message_to_json(finished)})
        else:
            print(printable(f"{resource} is free again, epoch {finished.epoch}"))


def _begin(
    stub: LeaseServiceStub, request: BeginMaintenanceRequest, *, path: Path, hub: str
) -> BeginMaintenanceResponse:
    """Begin a maintenance, or go on with the one whose credential is kept."""
    kept = credential_file.read(path)
    if kept is not None:
        _check_resource(kept, request.resource, path=path)
        request.nonce = kept.nonce
        try:
            return stub.BeginMaintenance(request, timeout=UNARY_SECONDS_MAX)
        except grpc.RpcError as error:
            if refusal_from_error(error).reason != "LEASE_SUPERSEDED":
                raise
            # That maintenance has ended; its secret opens nothing any more.
    request.nonce = credential_file.new_nonce()
    credential = LeaseCredential(
        resource=request.resource,
        runtime_id=request.runtime_id,
        holder_id=request.holder_id,
        nonce=request.nonce,
    )
    credential_file.write(path, credential)
    try:
        return stub.BeginMaintenance(request, timeout=UNARY_SECONDS_MAX)
    except grpc.RpcError as error:
        refusal = refusal_from_error(error)
        if refusal.reason in PASSING_REASONS:
            hint = "Whether it has begun is unknown. Give the same command again: it goes on with this one."
            raise CommandFailed(explain(refusal, hub_addresses(hub)), hint=hint) from error
        credential_file.remove(path)
        raise


def _default_path(channel: grpc.Channel, hub_project: str, *, resource: str) -> Path:
    if not hub_project:
        # Which one a token stands for is not known here, and two of them may have one resource's name.
        raise no_hub_project("a hub project is needed to keep the credential under, or --credential FILE")
    info = HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=UNARY_SECONDS_MAX)
    return credential_file.default_path(info.hub_generation, hub_project=hub_project, resource=resource)


def _kept_credential(path: Path, resource: str) -> LeaseCredential:
    kept = credential_file.read(path)
    if kept is None:
        raise CommandFailed(
            f"no credential of a maintenance of {resource} is in {path}",
            hint="Who began it has the file; --credential FILE names it. Else it ends by itself.",
        )
    _check_resource(kept, resource, path=path)
    return kept


def _check_resource(kept: LeaseCredential, resource: str, *, path: Path) -> None:
    if kept.resource != resource:
        raise CommandFailed(printable(f"{path} is the credential of another resource: {kept.resource}"))


def _print_until(
    resource: str, facts: str, *, answer: BeginMaintenanceResponse | RenewMaintenanceResponse
) -> None:
    span = span_text(answer.ttl.ToNanoseconds() / 1e9)
    until = f"until {moment_text(answer.expire_time)} UTC ({span} from now)"
    print(printable(f"{resource} is under maintenance {until}, {facts}"))
