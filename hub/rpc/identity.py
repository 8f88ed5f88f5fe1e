"""Who calls: found once when a call begins, and held against what each of its requests says.

``Admission`` finds the caller by the call's credential and decides whether the role may make it;
``caller_of`` is the way of every handler to the ``Caller`` that every use case takes first. The
credential's identity is what counts. What a request says of itself besides must agree: else it is
refused, and alerted, and nothing of it is stored.
"""

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

import grpc.aio

from hub.core.certificate import caller_of_certificate
from hub.core.credential import caller_of_token
from hub.core.errors import Refusal
from hub.core.identity_errors import (
    CredentialInvalid,
    CredentialMissing,
    Forbidden,
    IdentityMismatch,
    Unauthenticated,
    project_not_covered,
)
from hub.core.permissions import check_permission
from hub.core.values import Caller, HubProject, Role
from hub.rpc.requests import RequestCheck
from hub.rpc.unread_answers import UnreadAnswers
from hub.service.rates import host_of
from hub.service.readers import read_in_turn_of
from hub.service.token_book import TokenBook

Request = TypeVar("Request")
Response = TypeVar("Response")

OWN_METHODS_PREFIX: Final = "/synchub.v1."
"""Methods that ``core.permissions`` decides about."""
OPEN_SERVICES: Final = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Services that anybody may call: they tell whether the hub is well, and what the published contract says."""
AUTHORIZATION_KEY: Final = "authorization"
_SCHEME: Final = "bearer "
_ADMIN_CALL: Final = "HubService/BackupHub"
"""What may be called by who may call this may call gRPC's own diagnostics."""


class MismatchObserver(Protocol):
    """Hears of callers whose requests say what their credentials do not."""

    def observe_mismatch(self, caller: Caller, *, project_id: str, run_id: str, runtime_id: str) -> None:
        """Count it for an alert of the caller's hub project."""


class CallRates(Protocol):
    """Counts the calls that begin."""

    def check_call(self, credential_key: str, peer: str) -> None:
        """Count one; raises RateLimited where its credential, or without one its host, makes too many."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: who makes it, or why it is refused.

    ``caller`` is None for who came without a credential to a hub that wants none.
    """

    peer: str
    caller: Caller | None
    refusal: Refusal | None
    admission: "Admission"

    @property
    def credential_key(self) -> str:
        """What tells the credential from all others, "" where there is none."""
        return "" if self.caller is None else self.caller.credential_key

    @property
    def asker(self) -> str:
        """Who asks, as what is asked is counted: the credential, or without one the host."""
        return self.credential_key or host_of(self.peer)

    def fault(self) -> Refusal | None:
        """Return why the call may not go on, None where it may."""
        if self.refusal is not None:
            return self.refusal
        if self.caller is None or self.caller.token_id is None:
            return None
        return self.admission.tokens.fault(self.caller.token_id)


_CALL: ContextVar[Call] = ContextVar("call")
"""The call that the running task serves; set before a handler runs."""


class Admission:
    """Finds out who calls, and whether they may make this call at all."""

    def __init__(
        self,
        tokens: TokenBook,
        *,
        observer: MismatchObserver,
        rates: CallRates,
        are_credentials_required: bool,
        trust_domain: str | None = None,
    ) -> None:
        """Bind the tokens; ``trust_domain`` is that of client certificates, None where there are none."""
        self.tokens = tokens
        self.observer = observer
        self.unread = UnreadAnswers()
        self._rates = rates
        self._are_credentials_required = are_credentials_required
        self._trust_domain = trust_domain

    def begin(self, context: grpc.aio.ServicerContext[Request, Response], method: str) -> Call:
        """Return the call that begins, and make it the running task's; never raises."""
        peer = context.peer()
        caller: Caller | None = None
        refusal: Refusal | None = None
        try:
            if not method.startswith(OPEN_SERVICES):
                caller = self._known(context, peer)
                role = Role.ANONYMOUS if caller is None else caller.role
                is_own = method.startswith(OWN_METHODS_PREFIX)
                self._rates.check_call("" if caller is None else caller.credential_key, peer)
                check_permission(role, method.removeprefix(OWN_METHODS_PREFIX) if is_own else _ADMIN_CALL)
        except Refusal as raised:
            refusal = raised
        call = Call(peer, caller, refusal, self)
        _CALL.set(call)
        return call

    def _known(self, context: grpc.aio.ServicerContext[Request, Response], peer: str) -> Caller | None:
        """Return who calls; calls with wrong credentials count for their host, like those without any."""
        try:
            return self._identify(context, peer)
        except Unauthenticated:
            self._rates.check_call("", peer)
            raise

    def _identify(self, context: grpc.aio.ServicerContext[Request, Response], peer: str) -> Caller | None:
        """Return who calls, None for nobody in particular.

        A token that is sent must be right, also where none is wanted. Beside a certificate it decides,
        and must not be for somebody else.
        """
        by_certificate = self._by_certificate(context, peer)
        sent = [str(value) for key, value in context.invocation_metadata() or () if key == AUTHORIZATION_KEY]
        if not sent:
            if by_certificate is None and self._are_credentials_required:
                raise CredentialMissing()
            return by_certificate
        if len(sent) > 1:
            raise CredentialInvalid("authorization was sent more than once")
        if not sent[0].lower().startswith(_SCHEME):
            raise CredentialInvalid("authorization must be 'Bearer ' and a token")
        caller = caller_of_token(self.tokens.authenticate(sent[0][len(_SCHEME) :]), peer)
        if by_certificate is not None:
            self._refuse_two_identities(caller, by_certificate)
        return caller

    def _refuse_two_identities(self, by_token: Caller, by_certificate: Caller) -> None:
        """Return where a token and a certificate can both be of the one who calls.

        Raises: IdentityMismatch, which is alerted in the token's hub project.
        """
        runtime_id = by_certificate.runtime_id or ""
        if by_token.hub_project != by_certificate.hub_project:
            refusal = IdentityMismatch("certificate hub_project", by_certificate.hub_project)
        elif by_token.runtime_id is not None and by_token.runtime_id != runtime_id:
            refusal = IdentityMismatch("certificate runtime_id", runtime_id)
        else:
            return
        self.observer.observe_mismatch(by_token, project_id="", run_id="", runtime_id=runtime_id)
        raise refusal

    def _by_certificate(
        self, context: grpc.aio.ServicerContext[Request, Response], peer: str
    ) -> Caller | None:
        """Return whom the client certificate names, None where there is none or it names nobody."""
        if self._trust_domain is None:
            return None
        uris = list(context.auth_context().get("peer_uri", ()))
        if not uris:
            return None
        if len(uris) > 1:
            raise CredentialInvalid("the certificate has more than one URI name")
        uri = uris[0].decode(errors="replace")
        return caller_of_certificate(uri, peer, trust_domain=self._trust_domain)


def current_call() -> Call:
    """Return the call that the running task serves."""
    return _CALL.get()


def caller_of(
    context: grpc.aio.ServicerContext[Request, Response],
    hub_project: str,
    *,
    check: RequestCheck,
    runtime_id: str | None = None,
    project_id: str | None = None,
    run_id: str = "",
) -> Caller:
    """Return the caller of a request that says this of itself.

    ``runtime_id`` is who the request says acts, None where it does not say; ``project_id`` the project
    that it acts on, "" for all of them, None where it is about none. Without credentials the request
    names its hub project: one that is empty or no identifier is noted in ``check``; refuse its violations
    before the caller is used. What the task reads from now on waits in the turn of its hub project.

    Raises: IdentityMismatch, PermissionDenied (both are alerted); Unauthenticated where the credential
    has ended since the call began.
    """
    call = _CALL.get()
    fault = call.fault()
    if fault is not None:
        raise fault
    caller = call.caller
    if caller is None:
        check.identifier("hub_project", hub_project)
        read_in_turn_of(hub_project)
        return Caller(HubProject(hub_project), None, Role.ANONYMOUS, call.peer, "")
    refuse_mismatch(
        caller, hub_project=hub_project, runtime_id=runtime_id, project_id=project_id, run_id=run_id
    )
    read_in_turn_of(caller.hub_project)
    return caller


def refuse_mismatch(
    caller: Caller,
    *,
    hub_project: str = "",
    runtime_id: str | None = None,
    project_id: str | None = None,
    run_id: str = "",
) -> None:
    """Return where what a request says of itself agrees with who calls; see ``caller_of``.

    Raises: IdentityMismatch, PermissionDenied; both are alerted.
    """
    refusal: Forbidden
    if hub_project and hub_project != caller.hub_project:
        refusal = IdentityMismatch("hub_project", hub_project)
    elif runtime_id and caller.runtime_id is not None and runtime_id != caller.runtime_id:
        refusal = IdentityMismatch("runtime_id", runtime_id)
    elif project_id is not None and not caller.covers(project_id):
        refusal = project_not_covered(project_id)
    else:
        return
    _CALL.get().admission.observer.observe_mismatch(
        caller, project_id=project_id or "", run_id=run_id, runtime_id=runtime_id or ""
    )
    raise refusal


def hub_caller_of(
    context: grpc.aio.ServicerContext[Request, Response], hub_project: str, *, check: RequestCheck
) -> Caller:
    """Return the caller of an operator's request about a hub project; an admin's may be about any.

    Raises: like ``caller_of``.
    """
    caller = _CALL.get().caller
    if caller is None or caller.role is not Role.ADMIN or not hub_project:
        return caller_of(context, hub_project, check=check)
    admin = caller_of(context, "", check=check)
    check.identifier("hub_project", hub_project)
    return replace(admin, hub_project=HubProject(hub_project))
