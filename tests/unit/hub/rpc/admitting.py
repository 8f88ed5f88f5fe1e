"""Admission as a hub without credentials has it, for tests of what comes behind it."""

from hub.core.limits import Limits
from hub.rpc.identity import Admission
from hub.service.alert_book import AlertBook
from hub.service.instruments import NoInstruments
from hub.service.mismatches import Mismatches
from hub.service.rates import HubRates
from hub.service.token_book import TokenBook


def open_admission() -> Admission:
    """Let everybody in, without a name."""
    return Admission(
        TokenBook(credential_nanos=lambda: 0),
        observer=Mismatches(AlertBook(limits=Limits())),
        rates=HubRates(limits=Limits(), instruments=NoInstruments(), monotonic_seconds=lambda: 0.0),
        are_credentials_required=False,
    )
