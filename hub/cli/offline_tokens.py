"""What ``synchub token`` does with ``--db``: requests of the contract, answered from a store by itself.

Whoever may open the file may do everything to it, so these are an administrator's calls.
"""

import secrets
from collections.abc import Iterator

from google.protobuf.timestamp_pb2 import Timestamp

from hub.cli.offline import OfflineStore, opened_store, refusals_told, settings_for
from hub.core.values import Caller, HubProject, Role, TokenId
from hub.rpc.codec_time import timestamp_to_proto
from hub.rpc.codec_token import new_token_from_proto, token_to_proto
from hub.rpc.requests import RequestCheck
from hub.service.token_book import TOKENS_READ_AT_ONCE
from hub.service.tokens import create_command, revoke_command
from synchub.v1.hub_service_pb2 import (
    CreateTokenRequest,
    CreateTokenResponse,
    ListTokensRequest,
    RevokeTokenRequest,
    Token,
)


def created(db: str, request: CreateTokenRequest) -> CreateTokenResponse:
    """Make a token in a store, which is made where it is not there. Raises: CommandFailed."""
    settings = settings_for(db)
    with refusals_told():
        # Before there is a store.
        check = RequestCheck(settings.limits)
        wanted = new_token_from_proto(request, check)
        check.refuse_violations()
    with opened_store(settings, is_made=True) as store:
        made = store.run(
            create_command(
                _caller(request.hub_project),
                wanted,
                limits=settings.limits,
                credential_nanos=store.credential_nanos,
                random_bytes=secrets.token_bytes,
            )
        )
        return CreateTokenResponse(token=token_to_proto(made.token), bearer_token=made.bearer_token)


def listed(db: str, request: ListTokensRequest) -> tuple[list[Token], Timestamp]:
    """Return all tokens of a hub project, and the time by which they end. Raises: CommandFailed."""
    with opened_store(settings_for(db), is_made=False) as store:
        found = list(_tokens(store, HubProject(request.hub_project)))
        return found, timestamp_to_proto(store.credential_nanos())


def revoked(db: str, request: RevokeTokenRequest) -> Token:
    """Take a token back. Raises: CommandFailed."""
    with opened_store(settings_for(db), is_made=False) as store:
        caller, token_id = _caller(request.hub_project), TokenId(request.token_id)
        command = revoke_command(caller, token_id, credential_nanos=store.credential_nanos)
        return token_to_proto(store.run(command))


def _caller(hub_project: str) -> Caller:
    return Caller(HubProject(hub_project), None, Role.ADMIN, peer="", credential_name="")


def _tokens(store: OfflineStore, hub_project: HubProject) -> Iterator[Token]:
    after: TokenId | None = None
    while True:
        last = after
        page = store.read(
            lambda transaction, last=last: transaction.tokens.tokens(  # type: ignore[misc]  # bound now
                hub_project, after=last, entries_max=TOKENS_READ_AT_ONCE
            )
        )
        yield from map(token_to_proto, page)
        if len(page) < TOKENS_READ_AT_ONCE:
            return
        after = page[-1].token_id
