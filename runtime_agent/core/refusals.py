"""What the agent does about each refusal of a hub: a pure table.

No refusal makes the agent give up, and none reaches the program that appends.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final


class RefusalAction(Enum):
    """What to do; all but HOLD_PROJECT and BEGIN_ANEW also mean: connect again with backoff."""

    QUARANTINE_RUN = "quarantine_run"
    """The oldest unanswered batch breaks a rule: keep its run from syncing."""
    SHRINK_BATCHES = "shrink_batches"
    """A message is too large: smaller batches; a single event that is too large quarantines its run."""
    READ_CREDENTIALS = "read_credentials"
    """Again after at most 60 s, credentials read anew: a person has to change something, here or there."""
    HOLD_PROJECT = "hold_project"
    """That project's runs wait 60 s, the others go on."""
    BEGIN_ANEW = "begin_anew"
    """Another instance of this runtime was heard: begin anew with a fresh one, later each time."""
    RECONNECT = "reconnect"
    """Connect again with backoff, and reconcile."""


_CREDENTIAL_REASONS: Final = frozenset(
    (
        "CREDENTIAL_MISSING",
        "CREDENTIAL_INVALID",
        "CREDENTIAL_EXPIRED",
        "CREDENTIAL_REVOKED",
        # The credential is for another hub project or runtime than the settings say.
        "IDENTITY_MISMATCH",
        "QUOTA_EXCEEDED",
    )
)
_SIZE_LIMITS: Final = frozenset(("batch_bytes_max", "batch_events_max", "message_bytes_max"))
_BATCH_FIELD: Final = "events"
"""What a hub names where the events of a batch are too many or too large together."""
_IDENTITY_FIELDS: Final = frozenset(("hub_project", "runtime_id", "instance_id"))


def decide_refusal(
    *,
    reason: str,
    code: str,
    is_in_band: bool,
    project_id: str,
    limit: str,
    violated_fields: Collection[str],
) -> RefusalAction:
    """Say what a refusal asks for.

    - ``reason``: the bare reason; "" where the error is gRPC's own.
    - ``code``: the name of the gRPC code.
    - ``is_in_band``: said in a stream's response; only then does it answer a batch.
    - ``project_id``, ``limit``: what its metadata names; "" for nothing.
    """
    if reason == "RUNTIME_DUPLICATED":
        return RefusalAction.BEGIN_ANEW
    if reason in _CREDENTIAL_REASONS:
        return RefusalAction.READ_CREDENTIALS
    if reason == "PERMISSION_DENIED" and project_id:
        return RefusalAction.HOLD_PROJECT
    if not reason and code == "RESOURCE_EXHAUSTED":
        # gRPC itself says so of a message that is larger than the other side takes.
        return RefusalAction.SHRINK_BATCHES
    is_about_size = limit in _SIZE_LIMITS or _BATCH_FIELD in violated_fields
    if is_in_band and is_about_size and reason in ("INVALID_REQUEST", "LIMIT_REACHED"):
        return RefusalAction.SHRINK_BATCHES
    if is_in_band and reason == "INVALID_REQUEST" and not _IDENTITY_FIELDS.intersection(violated_fields):
        return RefusalAction.QUARANTINE_RUN
    # An invalid tenant or runtime is no run's fault: quarantining runs for it would take all of them.
    return RefusalAction.RECONNECT
