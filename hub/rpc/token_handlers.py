"""What operators do to tokens: each handler checks its request, asks a use case, and answers."""

from typing import TypeVar

import grpc.aio

from hub.core.limits import Limits
from hub.core.values import TokenId
from hub.rpc.codec_token import new_token_from_proto, token_to_proto
from hub.rpc.identity import hub_caller_of, refuse_mismatch
from hub.rpc.requests import RequestCheck, page_token_after
from hub.service.tokens import Tokens
from synchub.v1 import hub_service_pb2 as messages

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]


class TokenHandlers:
    """Serves CreateToken, ListTokens and RevokeToken."""

    def __init__(self, tokens: Tokens, *, limits: Limits) -> None:
        """Bind the use cases."""
        self._tokens = tokens
        self._limits = limits

    async def create_token(
        self,
        request: messages.CreateTokenRequest,
        context: Context[messages.CreateTokenRequest, messages.CreateTokenResponse],
    ) -> messages.CreateTokenResponse:
        """Make a token. Who acts on some projects only gives nothing beyond them."""
        check = RequestCheck(self._limits)
        caller = hub_caller_of(context, request.hub_project, check=check)
        wanted = new_token_from_proto(request, check)
        check.refuse_violations()
        for prefix in wanted.project_id_prefixes or ("",):
            refuse_mismatch(caller, project_id=prefix)
        created = await self._tokens.create(caller, wanted)
        return messages.CreateTokenResponse(
            token=token_to_proto(created.token), bearer_token=created.bearer_token
        )

    async def list_tokens(
        self,
        request: messages.ListTokensRequest,
        context: Context[messages.ListTokensRequest, messages.ListTokensResponse],
    ) -> messages.ListTokensResponse:
        """Return a page of tokens."""
        check = RequestCheck(self._limits)
        caller = hub_caller_of(context, request.hub_project, check=check)
        entries_max = check.page_size(request.page_size)
        key = check.text_page_key(request, request.page_token, count=1)
        check.refuse_violations()
        # One too many, so that the last page is known as such.
        found = await self._tokens.tokens(
            caller, after=None if key is None else TokenId(key[0]), entries_max=entries_max + 1
        )
        response = messages.ListTokensResponse()
        bytes_sum = 0
        for token in map(token_to_proto, found):
            bytes_sum += token.ByteSize()
            is_full = len(response.tokens) == entries_max or bytes_sum > self._limits.page_bytes_max
            if response.tokens and is_full:
                response.next_page_token = page_token_after(request, response.tokens[-1].token_id)
                break
            response.tokens.append(token)
        return response

    async def revoke_token(
        self,
        request: messages.RevokeTokenRequest,
        context: Context[messages.RevokeTokenRequest, messages.RevokeTokenResponse],
    ) -> messages.RevokeTokenResponse:
        """Take a token back."""
        check = RequestCheck(self._limits)
        caller = hub_caller_of(context, request.hub_project, check=check)
        check.identifier("token_id", request.token_id)
        check.refuse_violations()
        token = await self._tokens.revoke(caller, TokenId(request.token_id))
        return messages.RevokeTokenResponse(token=token_to_proto(token))
