"""What a client certificate says of its bearer: ``spiffe://TRUST/hub-project/P/runtime/R``.

The one URI name of the certificate. P and R are identifiers, percent-encoded where they need it. Its
bearer has the role RUNTIME and is that runtime alone.
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

from hub.core.identity_errors import CredentialInvalid
from hub.core.values import Caller, HubProject, Role, RuntimeId
from synchub.contract import identifier_fault

_TRUST_DOMAIN: Final = re.compile(r"[a-z0-9._-]{1,255}", re.ASCII)
_SEGMENT: Final = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})+"
"""A segment of a path as RFC 3986 has it."""
_FORM: Final = re.compile(
    rf"spiffe://({_TRUST_DOMAIN.pattern})/hub-project/({_SEGMENT})/runtime/({_SEGMENT})", re.ASCII
)


def is_trust_domain(text: str) -> bool:
    """Whether a text can be the trust domain of certificates."""
    return _TRUST_DOMAIN.fullmatch(text) is not None


def caller_of_certificate(uri: str, peer: str, *, trust_domain: str) -> Caller:
    """Return who the bearer of a certificate with this URI name is.

    Raises: CredentialInvalid where the name is of another form or trust domain, or its ids are no
    identifiers.
    """
    found = _FORM.fullmatch(uri)
    if found is None:
        raise CredentialInvalid(
            "the certificate's URI name is not spiffe://TRUST/hub-project/P/runtime/R; ask who issued it"
        )
    if found[1] != trust_domain:
        raise CredentialInvalid("the certificate's trust domain is not this hub's")
    hub_project, runtime_id = _identifier(found[2]), _identifier(found[3])
    return Caller(
        hub_project=HubProject(hub_project),
        runtime_id=RuntimeId(runtime_id),
        role=Role.RUNTIME,
        peer=peer,
        credential_name=uri,
        is_certificate=True,
    )


def _identifier(quoted: str) -> str:
    try:
        text = unquote_to_bytes(quoted).decode()
    except UnicodeDecodeError as error:
        raise CredentialInvalid("the certificate's URI name is not UTF-8 behind its percent signs") from error
    fault = identifier_fault(text)
    if fault is not None:
        raise CredentialInvalid(f"the certificate's URI name has an id that {fault}")
    return text
