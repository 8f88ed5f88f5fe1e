"""Who may see ``/metrics`` beyond loopback: who sends a bearer token of role ADMIN."""

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from hub.core.credential import Token
from hub.core.identity_errors import Unauthenticated
from hub.core.values import Role

SCHEME: Final = "bearer "
UNKNOWN_CALLER: Final = "This page wants a token of role admin, as 'Authorization: Bearer ...'.\n"
"""The same whatever is wrong with a token."""
WRONG_ROLE: Final = "This page is for tokens of role admin.\n"


class MetricsGuard:
    """Holds requests against the hub's tokens."""

    def __init__(self, authenticate: Callable[[str], Token]) -> None:
        """Bind what returns a right token, and raises ``Unauthenticated`` for any other."""
        self._authenticate = authenticate

    def refusal_of(self, request: Request) -> Response | None:
        """Return the answer to who may not see the page, None for who may."""
        sent = request.headers.getlist("authorization")
        if len(sent) != 1 or not sent[0].lower().startswith(SCHEME):
            return _unknown_caller()
        try:
            token = self._authenticate(sent[0][len(SCHEME) :].strip())
        except Unauthenticated:
            return _unknown_caller()
        if token.role is not Role.ADMIN:
            return PlainTextResponse(WRONG_ROLE, status_code=403)
        return None


def _unknown_caller() -> Response:
    return PlainTextResponse(UNKNOWN_CALLER, status_code=401, headers={"WWW-Authenticate": "Bearer"})
