"""Alerts about callers whose requests say of themselves what their credentials do not."""

from hub.core.alert import Observation
from hub.core.values import AlertKey, AlertReason, AlertSample, Caller
from hub.service.alert_book import AlertBook
from synchub.contract import identifier_fault


class Mismatches:
    """Counts them, for alerts of the caller's own hub project: nobody else hears of them."""

    def __init__(self, alert_book: AlertBook) -> None:
        """Bind where alerts are counted."""
        self._alert_book = alert_book

    def observe_mismatch(self, caller: Caller, *, project_id: str, run_id: str, runtime_id: str) -> None:
        """Count one. What was claimed may be anything; what is no identifier is left out."""
        named = (_identifier(project_id), _identifier(run_id), _identifier(runtime_id))
        key = AlertKey(caller.hub_project, AlertReason.IDENTITY_MISMATCH, *named)
        sample = AlertSample(0, 0, b"", b"", caller.peer, caller.credential_name)
        self._alert_book.observe(Observation(key, 1, (sample,)))


def _identifier(text: str) -> str:
    return "" if identifier_fault(text) is not None else text
