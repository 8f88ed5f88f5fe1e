"""Alerts about callers who say of themselves what their credentials do not."""

from hub.core.alert import Observation
from hub.core.limits import Limits
from hub.core.values import AlertKey, AlertReason, AlertSample, Caller, HubProject, Role, RuntimeId
from hub.service.alert_book import AlertBook
from hub.service.mismatches import Mismatches

CALLER = Caller(HubProject("own"), RuntimeId("me"), Role.RUNTIME, "ipv4:1.2.3.4:5", "my token")


class Book(AlertBook):
    """Keeps what is observed."""

    def __init__(self) -> None:
        super().__init__(limits=Limits())
        self.observed: list[Observation] = []

    def observe(self, observation: Observation) -> None:
        self.observed.append(observation)


def test_it_is_the_callers_own_hub_project_that_hears_who_called_and_what_was_claimed() -> None:
    book = Book()
    Mismatches(book).observe_mismatch(CALLER, project_id="p", run_id="r", runtime_id="else")
    key = AlertKey(HubProject("own"), AlertReason.IDENTITY_MISMATCH, "p", "r", "else")
    sample = AlertSample(0, 0, b"", b"", "ipv4:1.2.3.4:5", "my token")
    assert book.observed == [Observation(key, 1, (sample,))]


def test_what_is_claimed_and_no_identifier_is_left_out() -> None:
    book = Book()
    for claimed in ("", "\0", "a\nb", " a", "x" * 257):
        Mismatches(book).observe_mismatch(CALLER, project_id=claimed, run_id=claimed, runtime_id=claimed)
    named = {(each.key.project_id, each.key.run_id, each.key.runtime_id) for each in book.observed}
    assert named == {("", "", "")}
