"""Header fields that no client library would send open nothing, and do no harm."""

import pytest

from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from tests.contract.raw_call import Field, is_answered
from tests.contract.secured import SecuredHub

PATH = "/synchub.v1.HubService/GetHubInfo"


def bearer(hub: SecuredHub) -> bytes:
    return f"Bearer {hub.bearers['one/reader'].bearer_token}".encode()


def test_a_call_in_raw_http2_with_a_token_is_answered(secured_hub: SecuredHub) -> None:
    address = secured_hub.hub.address
    assert is_answered(address, PATH, [(b"authorization", bearer(secured_hub))])
    assert not is_answered(address, PATH, [])


@pytest.mark.parametrize(
    "fields",
    [
        [(b"authorization", b"{}\0")],
        [(b"authorization", b"{}\r\nx: y")],
        [(b"authorization", b"{}\xff")],
        [(b"authorization", b"\xff{}")],
        [(b"authorization", b"{}\xc3\xa9")],
        [(b"authorization", b"\xe2\x80\x8b{}")],
        [(b"authorization", b"\t{}")],
        [(b"authorization", b"{}\t")],
        [(b"authorization", b"{},{}")],
        [(b"authorization", b"{}"), (b"authorization", b"")],
        [(b"authorization", b""), (b"authorization", b"{}")],
        [(b"authorization", b"{}"), (b"authorization", b"{}")],
        [(b"authorization ", b"{}")],
        [(b"authorization\0", b"{}")],
        [(b"authorization-bin", b"{}")],
        [(b"authorization-bin", b"!!")],
        [(b":authorization", b"{}")],
        [(b"", b"{}")],
        [(b"cookie", b"authorization={}")],
        [(b"grpc-internal-authorization", b"{}")],
    ],
)
def test_what_is_nearly_the_header_opens_nothing(secured_hub: SecuredHub, fields: list[Field]) -> None:
    filled = [(name, value.replace(b"{}", bearer(secured_hub))) for name, value in fields]
    assert not is_answered(secured_hub.hub.address, PATH, filled)
    assert secured_hub.stubs("one/reader").hub.GetHubInfo(GetHubInfoRequest()).version


@pytest.mark.parametrize("name", [b"Authorization", b"AUTHORIZATION"])
def test_a_name_with_capitals_opens_no_more_than_the_token_does(secured_hub: SecuredHub, name: bytes) -> None:
    # HTTP/2 forbids them; whatever becomes of it, a wrong token is a wrong token.
    assert not is_answered(secured_hub.hub.address, PATH, [(name, bearer(secured_hub)[:-1] + b"x")])


def test_a_token_that_comes_after_the_request_comes_too_late(secured_hub: SecuredHub) -> None:
    trailers = [(b"authorization", bearer(secured_hub))]
    assert not is_answered(secured_hub.hub.address, PATH, [], trailers=trailers)
