"""Channels that show credentials: over real TLS, while the files behind them change."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import grpc
import pytest
import trustme

from synchub.channel import dial, explain, parse_addresses, refusal_from_error
from synchub.credential_channel import CredentialChannel
from synchub.credential_connections import OLD_CONNECTIONS_MAX
from synchub.credentials import LOOK_SECONDS, Credentials, CredentialsError, CredentialSource
from tests.unit.protos.showing_server import (
    ASK,
    COUNT,
    HOLD,
    LIST,
    ClientFiles,
    ShowingServer,
    server_credentials,
    serving,
)

CALL_SECONDS = 10.0
Result = TypeVar("Result")


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path) -> ClientFiles:
    return ClientFiles(tmp_path)


@pytest.fixture
def plain_server() -> Iterator[ShowingServer]:
    with serving() as server:
        yield server


@pytest.fixture
def tls_server(authority: trustme.CA) -> Iterator[ShowingServer]:
    """A server that wants a certificate of its clients."""
    with serving(server_credentials(authority, "127.0.0.1", "localhost", clients=authority)) as server:
        yield server


def ask(channel: grpc.Channel) -> bytes:
    return channel.unary_unary(ASK, bytes, bytes)(b"", timeout=CALL_SECONDS)


def refused_sentence(address: str, credentials: Credentials) -> str:
    """Return what a person is told of a call that must fail."""
    addresses = parse_addresses(address)
    with dial(addresses, credentials=credentials) as channel, pytest.raises(grpc.RpcError) as caught:
        ask(channel)
    return explain(refusal_from_error(caught.value), addresses)


class Held:
    """An open stream that answers when it is asked."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: SimpleQueue[bytes | None] = SimpleQueue()
        self._call = channel.stream_stream(HOLD, bytes, bytes)(iter(self._requests.get, None))

    def ask(self, request: bytes) -> bytes:
        self._requests.put(request)
        return next(self._call)

    def end(self) -> None:
        self._requests.put(None)
        assert list(self._call) == []


def eventually(look: Callable[[], bool]) -> None:
    """Wait for what another thread does after the end of a call."""
    give_up_at = time.monotonic() + CALL_SECONDS
    while not look():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def open_connections(channel: grpc.Channel) -> int:
    """How many inner channels are open, counted where they are kept."""
    assert isinstance(channel, CredentialChannel)
    return 1 + len(channel._connections._old)


# --- the token --------------------------------------------------------------------------------------


def test_a_client_that_shows_nothing_has_grpcs_own_channel(plain_server: ShowingServer) -> None:
    with dial(parse_addresses(f"127.0.0.1:{plain_server.port}")) as channel:
        assert not isinstance(channel, CredentialChannel)
        assert ask(channel) == b"- -"


def test_every_kind_of_call_shows_the_token(plain_server: ShowingServer) -> None:
    addresses = parse_addresses(f"127.0.0.1:{plain_server.port}")
    shown = b"Bearer synchub_t -"
    with dial(addresses, credentials=Credentials(token="synchub_t")) as channel:
        assert ask(channel) == shown
        asked = channel.unary_unary(ASK, bytes, bytes)
        assert asked.with_call(b"", timeout=CALL_SECONDS)[0] == shown
        assert asked.future(b"", timeout=CALL_SECONDS).result() == shown
        assert list(channel.unary_stream(LIST, bytes, bytes)(b"1", timeout=CALL_SECONDS)) == [b"1", shown]
        counted = channel.stream_unary(COUNT, bytes, bytes)
        assert counted(iter((b"1", b"2")), timeout=CALL_SECONDS) == b"2 " + shown
        assert counted.with_call(iter((b"1",)), timeout=CALL_SECONDS)[0] == b"1 " + shown
        assert counted.future(iter(()), timeout=CALL_SECONDS).result() == b"0 " + shown
        answers = channel.stream_stream(HOLD, bytes, bytes)(iter((b"1",)), timeout=CALL_SECONDS)
        assert list(answers) == [b"1 " + shown]


def test_metadata_of_the_caller_is_sent_besides(plain_server: ShowingServer) -> None:
    addresses = parse_addresses(f"127.0.0.1:{plain_server.port}")
    with dial(addresses, credentials=Credentials(token="t")) as channel:
        _, call = channel.unary_unary(ASK, bytes, bytes).with_call(
            b"", timeout=CALL_SECONDS, metadata=(("x-request-id", "7"),)
        )
        assert call.code() is grpc.StatusCode.OK


def test_a_token_is_replaced_under_an_open_channel_and_the_open_stream_goes_on(
    plain_server: ShowingServer, files: ClientFiles
) -> None:
    clock = Clock()
    files.put_token("old")
    source = CredentialSource(Credentials(token_file=files.token), clock=clock)
    with dial(parse_addresses(f"127.0.0.1:{plain_server.port}"), credentials=source) as channel:
        held = Held(channel)
        assert held.ask(b"1") == b"1 Bearer old -"
        files.put_token("new")
        assert ask(channel) == b"Bearer old -"
        clock.seconds += LOOK_SECONDS
        assert ask(channel) == b"Bearer new -"
        assert held.ask(b"2") == b"2 Bearer old -"
        held.end()
        assert open_connections(channel) == 1


def test_credentials_that_cannot_be_read_are_told_before_anything_is_dialled(files: ClientFiles) -> None:
    with pytest.raises(CredentialsError, match="No such file"):
        dial(parse_addresses("127.0.0.1:1"), credentials=Credentials(token_file=files.token))


# --- TLS --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_hub_is_trusted_by_the_name_or_the_ip_address_that_was_dialled(
    authority: trustme.CA, files: ClientFiles, host: str
) -> None:
    files.put_ca(authority)
    with (
        serving(server_credentials(authority, host)) as server,
        dial(parse_addresses(f"{host}:{server.port}"), credentials=Credentials(ca_file=files.ca)) as channel,
    ):
        assert ask(channel) == b"- -"


@pytest.mark.parametrize(
    ("addresses", "named"),
    [
        ("127.0.0.1:{port},127.0.0.2:{port}", "127.0.0.1"),
        ("localhost:{port},127.0.0.1:{port}", "localhost"),
        ("[::1]:{port},127.0.0.1:{port}", "::1"),
        ("[0:0:0:0:0:0:0:1]:{port},127.0.0.1:{port}", "::1"),
        ("no-such-hub.invalid:{port},127.0.0.1:{port}", "no-such-hub.invalid"),
    ],
)
def test_of_several_addresses_the_first_is_in_the_certificate(
    authority: trustme.CA, files: ClientFiles, addresses: str, named: str
) -> None:
    files.put_ca(authority)
    credentials = Credentials(ca_file=files.ca)
    with serving(server_credentials(authority, named)) as server:
        text = addresses.format(port=server.port)
        with dial(parse_addresses(text), credentials=credentials) as channel:
            assert ask(channel) == b"- -"
        # Which of the two gRPC tells of last is chance; that neither is trusted is not.
        turned_round = ",".join(reversed(text.split(",")))
        assert refused_sentence(turned_round, credentials)
        assert server.call_count == 1


def test_a_certificate_for_another_name_is_told(authority: trustme.CA, files: ClientFiles) -> None:
    files.put_ca(authority)
    with serving(server_credentials(authority, "hub.example")) as server:
        sentence = refused_sentence(f"127.0.0.1:{server.port}", Credentials(ca_file=files.ca))
    assert f"the certificate of the hub at 127.0.0.1:{server.port} is for another name" in sentence
    assert server.call_count == 0


def test_a_hub_of_another_authority_is_told(tls_server: ShowingServer, files: ClientFiles) -> None:
    files.put_ca(trustme.CA())
    for credentials in (Credentials(ca_file=files.ca), Credentials(is_tls=True)):
        sentence = refused_sentence(f"127.0.0.1:{tls_server.port}", credentials)
        assert "is not signed by an authority that is trusted here" in sentence
    assert tls_server.call_count == 0


def test_plain_text_and_tls_that_meet_are_told(
    tls_server: ShowingServer, plain_server: ShowingServer
) -> None:
    to_tls = refused_sentence(f"127.0.0.1:{tls_server.port}", Credentials(token="t"))
    assert "it speaks TLS where this client does not" in to_tls
    to_plain = refused_sentence(f"127.0.0.1:{plain_server.port}", Credentials(token="t", is_tls=True))
    assert "does not speak TLS" in to_plain
    assert plain_server.call_count == tls_server.call_count == 0


def test_a_hub_that_wants_a_certificate_is_told(
    tls_server: ShowingServer, authority: trustme.CA, files: ClientFiles
) -> None:
    files.put_ca(authority)
    sentence = refused_sentence(f"127.0.0.1:{tls_server.port}", Credentials(ca_file=files.ca))
    assert "wants a certificate that this client does not show" in sentence
    assert tls_server.call_count == 0


def mutual(files: ClientFiles) -> Credentials:
    return Credentials(
        token_file=files.token, ca_file=files.ca, certificate_file=files.certificate, key_file=files.key
    )


@pytest.fixture
def source(files: ClientFiles, authority: trustme.CA) -> CredentialSource:
    files.put_token("old")
    files.put_ca(authority)
    files.put_certificate(authority, "old")
    return CredentialSource(mutual(files), clock=Clock())


def pass_a_second(source: CredentialSource) -> None:
    assert isinstance(source._clock, Clock)
    source._clock.seconds += LOOK_SECONDS


def test_certificates_are_replaced_under_an_open_channel_and_the_open_stream_goes_on(
    tls_server: ShowingServer, files: ClientFiles, authority: trustme.CA, source: CredentialSource
) -> None:
    with dial(parse_addresses(f"127.0.0.1:{tls_server.port}"), credentials=source) as channel:
        held = Held(channel)
        assert held.ask(b"1") == b"1 Bearer old old"
        files.put_token("new")
        files.put_certificate(authority, "new")
        assert ask(channel) == b"Bearer old old"
        pass_a_second(source)
        assert ask(channel) == b"Bearer new new"
        assert held.ask(b"2") == b"2 Bearer old old"
        assert open_connections(channel) == 2
        held.end()
        eventually(lambda: open_connections(channel) == 1)
        assert ask(channel) == b"Bearer new new"


def test_an_authority_that_is_no_longer_trusted_is_not_for_new_calls(
    tls_server: ShowingServer, files: ClientFiles, authority: trustme.CA, source: CredentialSource
) -> None:
    with dial(parse_addresses(f"127.0.0.1:{tls_server.port}"), credentials=source) as channel:
        assert ask(channel) == b"Bearer old old"
        files.put_ca(trustme.CA())
        pass_a_second(source)
        with pytest.raises(grpc.RpcError):
            ask(channel)
        files.put_ca(authority)
        pass_a_second(source)
        assert ask(channel) == b"Bearer old old"
        assert open_connections(channel) == 1


def test_old_connections_are_bounded_the_oldest_stream_ends(
    tls_server: ShowingServer, files: ClientFiles, authority: trustme.CA, source: CredentialSource
) -> None:
    with dial(parse_addresses(f"127.0.0.1:{tls_server.port}"), credentials=source) as channel:
        streams: list[Held] = []
        for number in range(OLD_CONNECTIONS_MAX + 2):
            files.put_certificate(authority, f"c{number}")
            pass_a_second(source)
            streams.append(Held(channel))
            assert streams[-1].ask(b"a") == b"a Bearer old c%d" % number
        assert open_connections(channel) == OLD_CONNECTIONS_MAX + 1
        with pytest.raises(grpc.RpcError):
            streams[0].ask(b"b")
        assert [held.ask(b"b") for held in streams[1:]] == [
            b"b Bearer old c%d" % number for number in range(1, len(streams))
        ]


def test_a_channel_that_is_closed_ends_all_its_calls_and_takes_none(
    tls_server: ShowingServer, files: ClientFiles, authority: trustme.CA, source: CredentialSource
) -> None:
    channel = dial(parse_addresses(f"127.0.0.1:{tls_server.port}"), credentials=source)
    held = Held(channel)
    held.ask(b"1")
    files.put_certificate(authority, "new")
    pass_a_second(source)
    newer = Held(channel)
    newer.ask(b"1")
    channel.close()
    channel.close()
    for stream in (held, newer):
        with pytest.raises(grpc.RpcError):
            stream.ask(b"2")
    files.put_certificate(authority, "newer")
    pass_a_second(source)
    with pytest.raises(ValueError, match="closed channel"):
        ask(channel)


def test_a_connection_is_told_of_and_a_call_that_fails_is_over(
    tls_server: ShowingServer, source: CredentialSource
) -> None:
    seen: SimpleQueue[grpc.ChannelConnectivity] = SimpleQueue()
    with dial(parse_addresses(f"127.0.0.1:{tls_server.port}"), credentials=source) as channel:
        channel.subscribe(seen.put, try_to_connect=True)
        while seen.get(timeout=CALL_SECONDS) is not grpc.ChannelConnectivity.READY:
            pass
        channel.unsubscribe(seen.put)
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/test.Showing/Unknown", bytes, bytes)(b"", timeout=CALL_SECONDS)
        with pytest.raises(TypeError):
            channel.unary_stream(LIST, bytes, bytes)(b"", timeout="soon")  # type: ignore[arg-type]
        assert isinstance(channel, CredentialChannel)
        assert channel._connections._newest.call_count == 0
