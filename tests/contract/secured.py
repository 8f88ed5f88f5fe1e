"""A hub that wants credentials, with tokens of every role in two hub projects, and callers that show them.

A token is named by its hub project and its kind: ``one/runtime``, ``two/admin``; ``KINDS`` has them all.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar, cast

import grpc

from hub.config import HubSettings
from hub.core.credential import Token, bearer_token, hash_of_secret
from hub.core.limits import Limits
from hub.core.values import HubProject, Role, RuntimeId, TokenId
from hub.store.sqlite.engine import opened_engine
from hub.store.store import SqlStore
from synchub.contract import NANOS_PER_SECOND
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.hub_in_thread import HubInThread

Request = TypeVar("Request")
Response = TypeVar("Response")

HUB_PROJECTS: Final = ("one", "two")
BOUND_RUNTIME: Final = "bound"
"""The only runtime that the bearer of a token of the kind ``bound`` may be."""


class Kind(NamedTuple):
    """What a token is for; ``{}`` in a prefix stands for its hub project."""

    role: Role
    prefixes: Sequence[str] = ()
    runtime_id: str | None = None


KINDS: Final[Mapping[str, Kind]] = {
    "runtime": Kind(Role.RUNTIME, ("{}-",)),
    "bound": Kind(Role.RUNTIME, ("{}-",), BOUND_RUNTIME),
    "free": Kind(Role.RUNTIME),  # made before there was another hub project
    "reader": Kind(Role.READER),
    "operator": Kind(Role.OPERATOR),
    "admin": Kind(Role.ADMIN),
    "prefixed-reader": Kind(Role.READER, ("{}-a",)),
    "prefixed-operator": Kind(Role.OPERATOR, ("{}-a", "{}-b")),
    "expired": Kind(Role.RUNTIME, ("{}-",)),
    "revoked": Kind(Role.RUNTIME, ("{}-",)),
}


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token, and what its bearer sends."""

    token: Token
    bearer_token: str


@dataclass(frozen=True, slots=True)
class Stubs:
    """All services, as one caller sees them."""

    channel: grpc.Channel
    sync: SyncServiceStub
    presence: PresenceServiceStub
    lease: LeaseServiceStub
    journal: JournalServiceStub
    hub: HubServiceStub


class SecuredHub:
    """A running hub and who may call it."""

    def __init__(self, hub: HubInThread, bearers: Mapping[str, Bearer], database: Path) -> None:
        self.hub = hub
        self.database = database
        self.bearers = bearers
        self._channels: list[grpc.Channel] = []
        self._stubs: dict[str, Stubs] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for channel in self._channels:
            channel.close()

    def stubs(self, name: str) -> Stubs:
        """What the bearer of a token sees."""
        if name not in self._stubs:
            self._stubs[name] = self.stubs_showing(self.bearers[name].bearer_token)
        return self._stubs[name]

    def stubs_showing(self, token: str) -> Stubs:
        """What somebody sees who sends this as a token."""
        return self.stubs_sending(("authorization", f"Bearer {token}"))

    def stubs_sending(self, *metadata: tuple[str, str | bytes]) -> Stubs:
        """What somebody sees who sends this as metadata: whom nothing is asked of sends none."""
        plain = grpc.insecure_channel(self.hub.address)
        self._channels.append(plain)
        channel = grpc.intercept_channel(plain, _Sending(metadata)) if metadata else plain
        return Stubs(
            channel,
            SyncServiceStub(channel),
            PresenceServiceStub(channel),
            LeaseServiceStub(channel),
            JournalServiceStub(channel),
            HubServiceStub(channel),
        )


@contextmanager
def running_secured_hub(settings: HubSettings) -> Iterator[SecuredHub]:
    """Run a hub over a new store that has tokens."""
    bearers = make_tokens(settings.database, limits=settings.limits)
    with HubInThread(settings) as hub, SecuredHub(hub, bearers, settings.database) as secured:
        yield secured


def make_tokens(database: Path, *, limits: Limits, wall_nanos: int | None = None) -> Mapping[str, Bearer]:
    """Put all tokens into a store that no hub serves."""
    now_nanos = time.time_ns() if wall_nanos is None else wall_nanos
    bearers: dict[str, Bearer] = {}
    with _writing(database, limits=limits, wall_nanos=now_nanos) as create:
        for hub_project in HUB_PROJECTS:
            for name, kind in KINDS.items():
                bearer = new_bearer(hub_project, kind, display_name=name, now_nanos=now_nanos)
                if name == "expired":
                    over = replace(bearer.token, expire_nanos=now_nanos - NANOS_PER_SECOND)
                    bearer = replace(bearer, token=over)
                create(bearer.token, is_revoked=name == "revoked")
                bearers[f"{hub_project}/{name}"] = bearer
    return bearers


def new_bearer(
    hub_project: str,
    kind: Kind,
    *,
    display_name: str,
    now_nanos: int,
    ttl_seconds: float | None = None,
) -> Bearer:
    """A token that is in no store yet."""
    token_id, secret = TokenId(secrets.token_hex(10)), secrets.token_bytes(32)
    token = Token(
        token_id=token_id,
        secret_hash=hash_of_secret(secret),
        hub_project=HubProject(hub_project),
        display_name=display_name,
        role=kind.role,
        runtime_id=None if kind.runtime_id is None else RuntimeId(kind.runtime_id),
        project_id_prefixes=tuple(prefix.format(hub_project) for prefix in kind.prefixes),
        create_nanos=now_nanos,
        expire_nanos=None if ttl_seconds is None else now_nanos + round(ttl_seconds * NANOS_PER_SECOND),
        revoke_nanos=None,
    )
    return Bearer(token, bearer_token(token_id, secret))


def keep(database: Path, *tokens: Token, wall_nanos: int) -> None:
    """Put tokens into a store that no hub serves."""
    with _writing(database, limits=Limits(), wall_nanos=wall_nanos) as create:
        for token in tokens:
            create(token, is_revoked=False)


class _Create:
    """Keeps tokens within an open transaction."""

    def __init__(self, store: SqlStore, now_nanos: int) -> None:
        self._transaction = store.writing.begin()
        self._now_nanos = now_nanos

    def __call__(self, token: Token, *, is_revoked: bool) -> None:
        self._transaction.tokens.create(token)
        if is_revoked:
            self._transaction.tokens.revoke(token.token_id, self._now_nanos)


@contextmanager
def _writing(database: Path, *, limits: Limits, wall_nanos: int) -> Iterator[_Create]:
    with opened_engine(database, limits=limits) as engine:
        store = SqlStore(engine, limits=limits, wall_nanos=wall_nanos)
        yield _Create(store, wall_nanos)
        store.writing.commit(wall_nanos)
        store.close()


class _Details(NamedTuple):
    """A call's details, in the form that gRPC asks an interceptor for."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _Sending(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Sends metadata with every call, whatever its kind."""

    def __init__(self, metadata: Sequence[tuple[str, str | bytes]]) -> None:
        self._metadata = tuple(metadata)

    def _go_on(
        self,
        continuation: Callable[[grpc.ClientCallDetails, Request], Response],
        details: grpc.ClientCallDetails,
        request: Request,
    ) -> Response:
        sent = _Details(
            details.method,
            details.timeout,
            (*(details.metadata or ()), *self._metadata),
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )
        return continuation(cast("grpc.ClientCallDetails", sent), request)

    # One for all kinds of calls: only the names of its parameters are not those of each.
    intercept_unary_unary = _go_on  # type: ignore[assignment]
    intercept_unary_stream = _go_on  # type: ignore[assignment]
    intercept_stream_unary = _go_on  # type: ignore[assignment]
    intercept_stream_stream = _go_on  # type: ignore[assignment]
