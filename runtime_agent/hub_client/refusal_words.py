"""What the agent's ``status`` says of a link that is refused, in words that tell a person what to do."""

from collections.abc import Mapping

from runtime_agent.core.values import RuntimeIdentity
from runtime_agent.hub_client.errors import HubCallError
from synchub.credentials import CredentialSource


def refusal_words(error: Exception, *, identity: RuntimeIdentity, credentials: CredentialSource) -> str:
    """Return why the link is down."""
    if not isinstance(error, HubCallError):
        return str(error) or type(error).__name__
    said = error.sentence
    match error.reason:
        case "IDENTITY_MISMATCH":
            return (
                f"this agent is started for hub project {identity.hub_project!r} and runtime"
                f" {identity.runtime_id!r}, and its credential is not: {said}"
            )
        case "CREDENTIAL_MISSING" if not credentials.credentials.identifies:
            return f"the agent shows no credential, start it with --token-file or --cert-file: {said}"
        case "CREDENTIAL_MISSING" | "CREDENTIAL_INVALID" | "CREDENTIAL_EXPIRED" | "CREDENTIAL_REVOKED":
            words = f"the hub refused the credential: {said}"
            if files := credentials.credentials.files:
                words += (
                    f"; {' and '.join(files)} {'is' if len(files) == 1 else 'are'} read again at each try"
                )
            if credentials.fault:
                words += f" ({credentials.fault}, so its last good contents are shown)"
            return words
        case _:
            return said


def held_projects_words(held: Mapping[str, float], *, now: float) -> str:
    """Return which projects wait, "" for none. ``held``: until when each waits, in seconds as ``now``."""
    if not held:
        return ""
    project_id, until = min(held.items(), key=lambda each: each[1])
    others = f" and {len(held) - 1} more are" if len(held) > 1 else " is"
    return (
        f"project {project_id!r}{others} not open to this agent: tried again in"
        f" {max(0.0, until - now):.0f} s, the others go on"
    )
