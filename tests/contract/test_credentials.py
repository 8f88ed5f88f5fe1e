"""Who is let in: credentials that are missing, wrong, over, taken back; what is told apart."""

import grpc
import pytest

from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from tests.contract.conversation import refusal_of
from tests.contract.secured import SecuredHub


@pytest.mark.parametrize("name", ["one/runtime", "one/reader", "two/operator", "two/admin"])
def test_who_has_a_token_is_let_in(secured_hub: SecuredHub, name: str) -> None:
    info = secured_hub.stubs(name).hub.GetHubInfo(GetHubInfoRequest())
    assert len(info.hub_generation) == 32


def test_who_has_no_token_is_told_so(secured_hub: SecuredHub) -> None:
    stranger = secured_hub.stubs_sending()
    refusal = refusal_of(lambda: stranger.hub.GetHubInfo(GetHubInfoRequest()))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_MISSING")
