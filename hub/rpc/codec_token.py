"""Bearer tokens between the hub's values and protobuf."""

from collections.abc import Mapping
from typing import Final

from hub.core.credential import (
    PROJECT_ID_PREFIXES_MAX,
    TOKEN_TTL_SECONDS_MAX,
    TOKEN_TTL_SECONDS_MIN,
    Token,
)
from hub.core.values import Role, RuntimeId
from hub.rpc.codec_time import timestamp_to_proto
from hub.rpc.requests import RequestCheck
from hub.service.tokens import NewToken
from synchub.contract import NANOS_PER_SECOND
from synchub.v1 import hub_service_pb2 as messages

_ROLES: Final[Mapping[messages.Role.ValueType, Role]] = {
    messages.Role.Value(f"ROLE_{role.name}"): role for role in Role if role is not Role.ANONYMOUS
}
_ROLE_NUMBERS: Final[Mapping[Role, messages.Role.ValueType]] = {
    role: number for number, role in _ROLES.items()
}


def token_to_proto(token: Token) -> messages.Token:
    """Return a token as it is kept: nothing of its secret."""
    message = messages.Token(
        token_id=token.token_id,
        hub_project=token.hub_project,
        display_name=token.display_name,
        role=_ROLE_NUMBERS[token.role],
        runtime_id=token.runtime_id or "",
        project_id_prefixes=token.project_id_prefixes,
        create_time=timestamp_to_proto(token.create_nanos),
    )
    if token.expire_nanos is not None:
        message.expire_time.CopyFrom(timestamp_to_proto(token.expire_nanos))
    if token.revoke_nanos is not None:
        message.revoke_time.CopyFrom(timestamp_to_proto(token.revoke_nanos))
    return message


def new_token_from_proto(request: messages.CreateTokenRequest, check: RequestCheck) -> NewToken:
    """Return what token to make; what is wrong with it is noted in ``check``."""
    check.identifier("display_name", request.display_name)
    role = _ROLES.get(request.role)
    if role is None:
        known = ", ".join(sorted(each.name for each in _ROLES.values()))
        check.add("role", f"is not one of {known}")
    check.optional_identifier("runtime_id", request.runtime_id)
    if request.runtime_id and role is not Role.RUNTIME:
        check.add("runtime_id", "is given; only the role RUNTIME is bound to one")
    prefixes = tuple(request.project_id_prefixes)
    if prefixes and role is Role.ADMIN:
        check.add("project_id_prefixes", "are given; an admin's token is for everything")
    check.at_most("project_id_prefixes", len(prefixes), count_max=PROJECT_ID_PREFIXES_MAX)
    for index, prefix in enumerate(prefixes[:PROJECT_ID_PREFIXES_MAX]):
        field = f"project_id_prefixes[{index}]"
        if not prefix:
            check.add(field, "is empty; leave all prefixes out to cover all projects")
        check.prefix(field, prefix)
    return NewToken(
        request.display_name,
        role or Role.READER,
        RuntimeId(request.runtime_id) if request.runtime_id else None,
        prefixes,
        _ttl_nanos(request, check),
    )


def _ttl_nanos(request: messages.CreateTokenRequest, check: RequestCheck) -> int | None:
    if not request.HasField("ttl"):
        return None
    nanos = check.span_nanos("ttl", request.ttl)
    if check.is_clean and not (
        TOKEN_TTL_SECONDS_MIN * NANOS_PER_SECOND <= nanos <= TOKEN_TTL_SECONDS_MAX * NANOS_PER_SECOND
    ):
        sentence = f"is {nanos / NANOS_PER_SECOND:g} s; {TOKEN_TTL_SECONDS_MIN} s to 100 years are allowed"
        check.add("ttl", sentence)
    return nanos
