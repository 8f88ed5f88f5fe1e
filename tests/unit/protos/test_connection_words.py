"""What people are told of a connection that does not come about."""

import datetime

import grpc
import pytest
import trustme

from synchub.channel import Refusal, dial, explain, parse_addresses, refusal_from_error
from synchub.connection_words import connection_words
from synchub.credentials import Credentials
from tests.unit.protos.showing_server import ASK, serving

PREFIX = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "


@pytest.mark.parametrize(
    ("message", "part_of_the_words"),
    [
        ("Failed parsing HTTP/2 (Expected SETTINGS frame as the first frame, got frame type 79)", "no hub"),
        ("Failed to create security handshaker.", "of a kind that gRPC does not take"),
        ("recvmsg:Connection reset by peer", "ends the connection before it says a word"),
        ("Tls handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER: Invalid", "does not speak TLS"),
        ("SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: self signed: OK", "(self signed)"),
    ],
)
def test_what_grpc_says_is_said_in_a_persons_words(message: str, part_of_the_words: str) -> None:
    words = connection_words(PREFIX + message, "HUB")
    assert part_of_the_words in words
    assert "HUB" in words


@pytest.mark.parametrize("message", ["Socket closed", PREFIX + "Connection refused", ""])
def test_a_connection_that_broke_or_was_refused_has_no_words_of_its_own(message: str) -> None:
    assert connection_words(message, "HUB") == ""
    told = explain(Refusal(grpc.StatusCode.UNAVAILABLE, message), parse_addresses("127.0.0.1:1"))
    assert told.startswith("no hub can be reached at 127.0.0.1:1 (")


def test_an_expired_certificate_is_told() -> None:
    authority = trustme.CA()
    issued = authority.issue_cert(
        "127.0.0.1",
        not_before=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        not_after=datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC),
    )
    shown = [(issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())]
    with authority.cert_pem.tempfile() as ca_file, serving(grpc.ssl_server_credentials(shown)) as server:
        addresses = parse_addresses(f"127.0.0.1:{server.port}")
        with (
            dial(addresses, credentials=Credentials(ca_file=ca_file)) as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            channel.unary_unary(ASK, bytes, bytes)(b"", timeout=10)
    refusal = refusal_from_error(caught.value)
    assert explain(refusal, addresses) == f"the certificate of the hub at {addresses[0]} has expired"


def test_credentials_that_somebody_before_the_hub_wants_are_told() -> None:
    refusal = Refusal(grpc.StatusCode.UNAUTHENTICATED, "log in first")
    told = explain(refusal, parse_addresses("127.0.0.1:1"))
    assert told == "what listens at 127.0.0.1:1 wants to know who calls, and is no hub (log in first)"
