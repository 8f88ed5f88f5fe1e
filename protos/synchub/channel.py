"""What every client of the wire needs: addresses, channels, deadlines, and errors as values.

- ``parse_addresses`` reads ``HOST:PORT[,HOST:PORT…]`` as people type it;
- ``dial`` and ``dial_aio`` make a channel to whichever of these hubs answers; what it shows and trusts is
  said in ``credentials.py``;
- ``refusal_from_error`` and ``refusal_from_status`` turn what went wrong, whether a call's status or
  the ``error`` field of a stream's response, into one ``Refusal``;
- ``explain`` says it to a person.

Nothing in here knows a service's messages, and nothing connects before the first call.
"""

import asyncio
import ipaddress
import json
import random
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NewType, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from synchub.connection_words import connection_words
from synchub.contract import MESSAGE_BYTES_MAX
from synchub.credential_channel import CredentialChannel
from synchub.credential_channel_aio import CredentialChannelAio
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven, CredentialSource, TlsContents, source_of

UNARY_SECONDS_MAX: Final = 10.0
"""Deadline of a unary call, in seconds; a call that waits in the hub adds how long it may wait."""
FIRST_ANSWER_SECONDS_MAX: Final = 10.0
"""Longest that a client waits for the first answer on a stream, in seconds; streams have no deadline."""
RETRY_ATTEMPTS_MAX: Final = 5
"""Most attempts of an idempotent unary call, the first one counted."""
HUB_ADDRESSES_MAX: Final = 16
"""Most addresses in one list of hubs."""
VIOLATIONS_SHOWN_MAX: Final = 3
"""Most field violations that a sentence for people names."""

ERROR_DOMAIN: Final = "synchub"
"""The ``ErrorInfo`` domain of every refusal of a hub or an agent."""

IDEMPOTENT_UNARY_METHODS: Final[Mapping[str, Sequence[str]]] = {
    "synchub.v1.HubService": ("GetHubInfo", "ListTokens", "RevokeToken"),
    "synchub.v1.JournalService": (
        "Commit",
        "ListStreamEvents",
        "ListStreams",
        "GetProjection",
        "ListJournal",
        "ListOutboxMessages",
        "AcknowledgeOutboxMessage",
    ),
    "synchub.v1.LeaseService": (
        "GetLease",
        "ListLeases",
        "CheckLease",
        "GetResourceState",
        "RenewLease",
        "RenewMaintenance",
    ),
    "synchub.v1.PresenceService": ("GetRuntime", "ListRuntimes"),
    "synchub.v1.SyncService": (
        "ReconcileRuns",
        "GetRun",
        "ListRuns",
        "ListEvents",
        "ListAlerts",
        "AcknowledgeAlert",
        "BindProject",
        "ListProjects",
    ),
}
"""The unary calls that may be sent twice, by service: only these are retried, on UNAVAILABLE only."""

SERVICE_CONFIG: Final = json.dumps(
    {
        "loadBalancingConfig": [{"pick_first": {"shuffleAddressList": True}}],
        "methodConfig": [
            {
                "name": [
                    {"service": service, "method": method}
                    for service, methods in IDEMPOTENT_UNARY_METHODS.items()
                    for method in methods
                ],
                "retryPolicy": {
                    "maxAttempts": RETRY_ATTEMPTS_MAX,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ],
    }
)
"""How a channel chooses among hubs and what it retries. A shuffled ``pick_first`` opens one
connection; ``round_robin`` would open one from every client to every hub."""

CHANNEL_OPTIONS: Final[Sequence[tuple[str, int | str]]] = (
    ("grpc.service_config", SERVICE_CONFIG),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_retries", 1),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Its default of 60 s wins over the keepalive timeout: a frozen peer would be noticed late.
    ("grpc.http2.ping_timeout_ms", 10_000),
    # Else pings stop on a silent stream.
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 500),
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.max_reconnect_backoff_ms", 15_000),
    # Channels of one process share connections by default; heartbeats must not wait behind bulk.
    ("grpc.use_local_subchannel_pool", 1),
    # A hub is reached directly, whatever http_proxy says: it stands on loopback or in a private network.
    ("grpc.enable_http_proxy", 0),
)
"""The options of every channel to a hub, as (key, value). Unknown keys are ignored silently by gRPC,
so an architecture test looks for each in gRPC's binary."""
_RETRIES_OPTION: Final = "grpc.enable_retries"


# --- addresses --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HubAddress:
    """Where one hub listens: a host name or IP address (without brackets) and a port, 1 to 65,535."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressError(ValueError):
    """A list of addresses cannot be read; its text is a sentence for the person who typed it."""


def parse_addresses(text: str) -> tuple[HubAddress, ...]:
    """Read ``HOST:PORT[,HOST:PORT…]``, an IPv6 host in brackets, white space around each ignored.

    Returns: 1 to 16 addresses, in the order given, each once.

    Raises: AddressError, with a sentence that names the part that is wrong.
    """
    parts = [part.strip() for part in text.split(",")]
    if parts == [""]:
        raise AddressError("no address of a hub is given; HOST:PORT is needed, such as 127.0.0.1:7443")
    addresses = tuple(dict.fromkeys(_parse_address(part) for part in parts))
    if len(addresses) > HUB_ADDRESSES_MAX:
        raise AddressError(f"{len(addresses)} addresses are given; at most {HUB_ADDRESSES_MAX} are allowed")
    return addresses


def _parse_address(part: str) -> HubAddress:
    example = "HOST:PORT is needed, such as 127.0.0.1:7443 or [::1]:7443"
    if "://" in part or "/" in part:
        raise AddressError(f"the address {part!r} looks like a URL or a path; {example}")
    host, colon, port_text = part.rpartition(":")
    if not colon or not host:
        raise AddressError(f"the address {part!r} has no host or no port; {example}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if _ip_version(host) != 6:
            raise AddressError(f"the address {part!r} has brackets around what is no IPv6 address; {example}")
    elif ":" in host:
        raise AddressError(f"the address {part!r} has an IPv6 host without brackets; {example}")
    if not host.isascii() or any(character.isspace() or not character.isprintable() for character in host):
        raise AddressError(f"the host of the address {part!r} is not a name in ASCII; {example}")
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) <= 5):
        raise AddressError(f"the port of the address {part!r} is no number; {example}")
    port = int(port_text)
    if not 1 <= port <= 65_535:
        raise AddressError(f"the port of the address {part!r} is not between 1 and 65535")
    return HubAddress(host, port)


def addresses_text(addresses: Iterable[HubAddress]) -> str:
    """Return the list as ``parse_addresses`` reads it."""
    return ",".join(map(str, addresses))


# --- channels ---------------------------------------------------------------------------------------

Target = NewType("Target", str)
"""What gRPC dials: an address list under one of its resolver schemes."""


def dial(
    addresses: Sequence[HubAddress], *, credentials: CredentialsGiven = NO_CREDENTIALS, retries: bool = True
) -> grpc.Channel:
    """Return a channel to whichever of these hubs answers, for blocking callers; close it after use.

    Nothing is connected yet: a hub that cannot be reached, or is not trusted, shows as UNAVAILABLE at the
    first call. Where several addresses are given by name, it blocks while they are resolved. Without
    ``retries`` no call is sent twice: for callers that have deadlines of their own.

    The credentials' files are read now, and again when they change: new calls show and trust what they say
    then, open streams go on. With TLS the hub's certificate has to be for the name or IP address that was
    dialled. Of several addresses one name is verified, the first one's: each hub's certificate has to have
    it besides its own.

    Raises: CredentialsError where a file cannot be used.
    """
    target, source = _target(addresses, resolve_names(addresses)), source_of(credentials)
    options = [(key, value) for key, value in CHANNEL_OPTIONS if key != _RETRIES_OPTION]
    options.append((_RETRIES_OPTION, int(retries)))

    def connect(tls: TlsContents | None) -> grpc.Channel:
        if tls is None:
            return grpc.insecure_channel(target, options=options)
        trusted = [*options, *_verified_name_option(addresses)]
        return grpc.secure_channel(target, tls.channel_credentials(), options=trusted)

    return CredentialChannel(source, dial=connect) if _is_shown(source) else connect(None)


async def dial_aio(
    addresses: Sequence[HubAddress], *, credentials: CredentialsGiven = NO_CREDENTIALS
) -> grpc.aio.Channel:
    """Return a channel like ``dial``'s for the running event loop; close it after use.

    Names are resolved, and files read, off the loop. Raises: CredentialsError.
    """
    resolved = await asyncio.to_thread(resolve_names, addresses)
    source = await asyncio.to_thread(source_of, credentials)
    target = _target(addresses, resolved)

    def connect(tls: TlsContents | None) -> grpc.aio.Channel:
        if tls is None:
            return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)
        trusted = [*CHANNEL_OPTIONS, *_verified_name_option(addresses)]
        return grpc.aio.secure_channel(target, tls.channel_credentials(), options=trusted)

    return CredentialChannelAio(source, dial=connect) if _is_shown(source) else connect(None)


def _is_shown(source: CredentialSource) -> bool:
    """Whether there is anything to show or trust: without it a plain channel of gRPC's will do."""
    return source.credentials.identifies or source.credentials.uses_tls


def _verified_name_option(addresses: Sequence[HubAddress]) -> Sequence[tuple[str, str]]:
    """Return whom the hub's certificate has to name, where gRPC would not get it right by itself.

    It takes what was dialled, letter by letter: a list of addresses is no name, and an IP address has
    several spellings, of which certificates know the shortest.
    """
    first = addresses[0]
    name = first.host
    if _ip_version(name) is not None:
        name = str(ipaddress.ip_address(name.partition("%")[0]))
    if len(addresses) == 1 and name == first.host:
        return ()
    return (("grpc.default_authority", str(HubAddress(name, first.port))),)


def resolve_names(addresses: Sequence[HubAddress]) -> tuple[HubAddress, ...]:
    """Return the IP addresses behind several addresses; one address alone is left to gRPC (empty).

    gRPC resolves one name or takes a list of IP addresses, but no list of names. A name that cannot
    be resolved now is left out; dial anew to try again. Blocks on DNS where there are names.
    """
    if len(addresses) == 1:
        return ()
    found: list[HubAddress] = []
    for address in addresses:
        if _ip_version(address.host) is not None:
            found.append(address)
            continue
        try:
            records = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        found.extend(HubAddress(str(record[4][0]), address.port) for record in records)
    return tuple(dict.fromkeys(found))


def _target(addresses: Sequence[HubAddress], resolved: Sequence[HubAddress]) -> Target:
    if not resolved:
        # One address, or several names none of which can be resolved now: gRPC tells what is wrong.
        return Target(f"dns:///{random.choice(addresses)}")
    if all(_ip_version(address.host) == 4 for address in resolved):
        return Target("ipv4:" + addresses_text(resolved))
    # One scheme has one family: IPv4 addresses in a mixed list are written as IPv6 maps them.
    return Target("ipv6:" + addresses_text(map(_as_ipv6, resolved)))


def _as_ipv6(address: HubAddress) -> HubAddress:
    if _ip_version(address.host) == 4:
        return HubAddress(f"::ffff:{address.host}", address.port)
    return address


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return None


# --- errors -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One field of a request that broke a bound or a type: its path, and a phrase that says how."""

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a call or a stream ended with, decoded once so that callers decide on values.

    ``reason`` is the bare reason of a hub or an agent ("RUNTIME_DUPLICATED"); it is empty where the
    error is not one of theirs but the connection's. Decide on ``reason`` and ``code``, never on
    ``message``. Metadata keys are lowerCamelCase ("projectId").
    """

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[FieldViolation, ...] = ()
    retry_delay_seconds: float | None = None

    @property
    def is_connection_loss(self) -> bool:
        """True where no hub answered: not reachable, gone in between, or too late."""
        return not self.reason


_CODE_BY_NUMBER: Final = {code.value[0]: code for code in grpc.StatusCode}


def refusal_from_status(status: status_pb2.Status) -> Refusal:
    """Return the refusal that a stream's response says in its ``error`` field."""
    reason, metadata = "", {}
    violations: tuple[FieldViolation, ...] = ()
    retry_delay_seconds: float | None = None
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        bad_request = error_details_pb2.BadRequest()
        retry_info = error_details_pb2.RetryInfo()
        try:
            if detail.Unpack(info):
                if info.domain == ERROR_DOMAIN:
                    reason, metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(bad_request):
                violations = tuple(
                    FieldViolation(each.field, each.description) for each in bad_request.field_violations
                )
            elif detail.Unpack(retry_info):
                retry_delay_seconds = retry_info.retry_delay.ToNanoseconds() / 1e9
        except DecodeError:  # bytes that are not the message they claim to be
            continue
    return Refusal(
        code=_CODE_BY_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN),
        message=status.message,
        reason=reason,
        metadata=metadata,
        violations=violations,
        retry_delay_seconds=retry_delay_seconds,
    )


def refusal_from_error(error: grpc.RpcError) -> Refusal:
    """Return the refusal behind an error that a call raised, sync or aio.

    An error without details of ours (a lost connection, a deadline) has an empty reason.
    """
    if not isinstance(error, (grpc.Call, grpc.aio.AioRpcError)):
        return Refusal(grpc.StatusCode.UNKNOWN, str(error))
    # An aio error has what is read here, though its type is another one.
    call = cast(grpc.Call, error)
    try:
        status = rpc_status.from_call(call)
    except ValueError:  # the details say another code or message than the call: believe the call
        status = None
    if status is not None:
        return refusal_from_status(status)
    return Refusal(call.code(), call.details() or "")


def explain(refusal: Refusal, addresses: Sequence[HubAddress]) -> str:
    """Return what happened as a sentence or two for a person, without a full stop at the end."""
    where = addresses_text(addresses)
    if refusal.violations:
        shown = "; ".join(
            f"{each.field} {each.description}" for each in refusal.violations[:VIOLATIONS_SHOWN_MAX]
        )
        return f"the hub refused the request: {shown}"
    if not refusal.is_connection_loss:
        return refusal.message or f"the hub refused the request: {refusal.reason}"
    match refusal.code:
        case grpc.StatusCode.UNAVAILABLE:
            known = connection_words(refusal.message, where)
            return known or f"no hub can be reached at {where} ({refusal.message}); is it running?"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"the hub at {where} did not answer in time"
        case grpc.StatusCode.UNAUTHENTICATED:
            return f"what listens at {where} wants to know who calls, and is no hub ({refusal.message})"
        case grpc.StatusCode.UNIMPLEMENTED:
            return f"what listens at {where} does not know this call; it is no hub, or an older one"
        case _:
            return f"the call to {where} failed: {refusal.message or 'no reason given'} ({refusal.code.name})"
