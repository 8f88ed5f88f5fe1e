"""Whom a hub lets in: decided once at its start, and said to who starts it.

Belongs to the composition root (``hub.app``).
"""

import sys
from dataclasses import dataclass

import structlog

from hub.config import Endpoint, HubSettings
from hub.core.errors import StartRefused
from hub.rpc.server import is_loopback
from hub.store.store import SqlStore

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Whom a hub lets in.

    ``trust_domain`` is that of client certificates, None where none are asked for. ``has_tokens`` is whether
    the store had any at the start.
    """

    are_credentials_required: bool
    trust_domain: str | None
    has_tokens: bool = False


@dataclass(frozen=True, slots=True)
class AccessWords:
    """The same for people: what holds, and what they should worry about."""

    sentence: str
    warnings: tuple[str, ...]


def decide_access(settings: HubSettings, store: SqlStore) -> Access:
    """Decide whom the hub lets in: with credentials once there are any, unless told otherwise.

    Raises: StartRefused where anybody on the network could do everything.
    """
    with store.reading() as transaction:
        has_tokens = bool(transaction.tokens.tokens(None, after=None, entries_max=1))
    are_required = settings.credentials == "required"
    if settings.credentials == "auto":
        are_required = has_tokens or settings.trust_domain is not None
    refuse_anybody(settings, are_credentials_required=are_required)
    return Access(are_required, settings.trust_domain, has_tokens)


def refuse_anybody(settings: HubSettings, *, are_credentials_required: bool) -> None:
    """Return where nobody without a credential reaches the hub from elsewhere, or that is meant.

    Raises: StartRefused.
    """
    if are_credentials_required or settings.is_anyone_let_in:
        return
    for endpoint, flag in ((settings.listen, "--listen"), (settings.http, "--http")):
        if endpoint is not None and not is_loopback(endpoint.host):
            raise _beyond_loopback(endpoint, flag)


def say_access(settings: HubSettings, access: Access, *, address: str, http_address: str | None) -> None:
    """Tell people, on standard error, and the log whom the hub lets in."""
    words = access_words(settings, access, address=address, http_address=http_address)
    log.info(
        "hub_access",
        are_credentials_required=access.are_credentials_required,
        is_tls=settings.tls is not None,
        trust_domain=access.trust_domain,
    )
    print(f"synchub: {words.sentence}", file=sys.stderr, flush=True)
    for warning in words.warnings:
        log.warning("hub_access_doubtful", problem=warning)
        print(f"synchub: WARNING: {warning}.", file=sys.stderr, flush=True)


def access_words(
    settings: HubSettings, access: Access, *, address: str, http_address: str | None
) -> AccessWords:
    """Say whom a hub lets in that listens on these addresses."""
    is_tls = settings.tls is not None
    transport = "TLS" if is_tls else "no TLS"
    outside = [
        bound
        for endpoint, bound in ((settings.listen, address), (settings.http, http_address))
        if endpoint is not None and bound is not None and not is_loopback(endpoint.host)
    ]
    where = " and ".join(outside)
    warnings: list[str] = []
    if not access.are_credentials_required:
        sentence = f"credentials: none, anybody who reaches {address} may do everything; {transport}"
        if outside:
            warnings.append(
                f"anybody on the network who reaches {where} may read, change and delete everything of every"
                " hub project, since --anyone-may-connect was given"
            )
        return AccessWords(sentence, tuple(warnings))
    sentence = f"credentials: tokens; {transport}"
    if access.trust_domain is not None:
        sentence += f"; client certificates of trust domain {access.trust_domain}"
    if outside and not is_tls:
        warnings.append(
            f"tokens travel to {where} without TLS: who is on the way can read and use them;"
            " give --tls-cert and --tls-key"
        )
    if settings.is_anyone_let_in:
        warnings.append("--anyone-may-connect does nothing here: the hub wants credentials all the same")
    if access.trust_domain is None and not access.has_tokens:
        warnings.append(
            "there is no token yet, so nobody can connect: stop the hub and make the first one with"
            f" synchub token create --db {settings.database}"
        )
    return AccessWords(sentence, tuple(warnings))


def _beyond_loopback(endpoint: Endpoint, flag: str) -> StartRefused:
    sentence = (
        f"{flag} {endpoint} is not a loopback address, and this hub wants no credentials:"
        " whoever reaches it could do everything."
    )
    hint = (
        "Make a token (synchub token create --db …) or ask for client certificates (--tls-client-ca),"
        " and give --tls-cert and --tls-key."
    )
    return StartRefused(sentence, hint)
