"""TLS on both ports: who is trusted, certificates that are replaced under a running hub, and junk."""

import random
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.config import HubSettings
from hub.core.limits import Limits
from synchub.channel import refusal_from_error
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_service_pb2 import GetRunRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.pushing import events, push
from tests.contract.tls import (
    LIFE,
    Authority,
    CertificateFolder,
    client_hello,
    replace_file,
    trusting,
    with_tls,
)

SECONDS_MAX: Final = 20.0
HANDSHAKE_SECONDS_MAX: Final = 15.0
"""Connections that say nothing are closed after 10."""
LIMITS: Final = Limits(certificate_check_seconds=0.05)
HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


class SecureHub:
    """A hub with TLS, its authority and the files that it reads."""

    def __init__(self, hub: HubInThread, authority: Authority, certificates: CertificateFolder) -> None:
        self.hub = hub
        self.authority = authority
        self.certificates = certificates

    @property
    def ports(self) -> tuple[int, int]:
        """gRPC's and HTTP's."""
        return port_of(self.hub.address), port_of(self.hub.http_address)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@contextmanager
def secure_hub(settings: HubSettings, folder: Path) -> Iterator[SecureHub]:
    authority, certificates = Authority(), CertificateFolder(folder)
    certificates.put(authority.server())
    with HubInThread(with_tls(settings, certificates)) as hub:
        yield SecureHub(hub, authority, certificates)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[SecureHub]:
    """A hub whose certificates a test may replace."""
    with secure_hub(settings_in(tmp_path, LIMITS), tmp_path) as started:
        yield started


def is_trusted(hub: HubInThread, authority: Authority, *, name: str | None = None) -> bool:
    """Whether a new client that trusts only this authority gets in."""
    with trusting(hub.address, authority, name=name) as channel:
        try:
            HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=SECONDS_MAX)
        except grpc.RpcError as error:
            if refusal_from_error(error).code is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
        return True


def is_http_trusted(hub: HubInThread, authority: Authority) -> bool:
    context = ssl.create_default_context(cadata=authority.pem.decode())
    try:
        with urllib.request.urlopen(
            f"https://{hub.http_address}/healthz", timeout=SECONDS_MAX, context=context
        ) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLCertVerificationError):
            raise
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def test_only_who_trusts_the_authority_talks_to_the_hub(secure: SecureHub) -> None:
    assert is_trusted(secure.hub, secure.authority)
    assert is_http_trusted(secure.hub, secure.authority)
    stranger = Authority()
    assert not is_trusted(secure.hub, stranger)
    assert not is_http_trusted(secure.hub, stranger)
    assert not is_trusted(secure.hub, secure.authority, name="another.example.org")
    with grpc.insecure_channel(secure.hub.address) as channel:
        stub = HubServiceStub(channel)
        refusal = refusal_of(lambda: stub.GetHubInfo(GetHubInfoRequest(), timeout=SECONDS_MAX))
    assert refusal.code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_ports_speak_each_current_version(secure: SecureHub, version: ssl.TLSVersion) -> None:
    for port, protocol in zip(secure.ports, ("h2", "http/1.1"), strict=True):
        context = ssl.create_default_context(cadata=secure.authority.pem.decode())
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols([protocol])
        with (
            socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as spoken,
        ):
            assert spoken.selected_alpn_protocol() == protocol
            assert spoken.version() == version.name.replace("_", ".")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_neither_port_speaks_an_old_version(secure: SecureHub) -> None:
    for port in secure.ports:
        context = ssl.create_default_context(cadata=secure.authority.pem.decode())
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
        ):
            context.wrap_socket(plain, server_hostname="localhost")


def test_new_certificates_are_for_new_connections_and_open_streams_go_on(secure: SecureHub) -> None:
    old, new = secure.authority, Authority("new")
    with trusting(secure.hub.address, old) as channel:
        beat = HeartbeatRequest(hub_project="h", runtime_id="r", instance_id="i")
        with Conversation(PresenceServiceStub(channel).Heartbeat) as stream:
            stream.ask(beat)
            secure.certificates.put(new.server())
            wait_until(lambda: is_trusted(secure.hub, new))
            wait_until(lambda: is_http_trusted(secure.hub, new))
            assert not is_trusted(secure.hub, old)
            assert not is_http_trusted(secure.hub, old)
            for _ in range(3):
                assert stream.ask(beat).HasField("hub_time")
        HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=SECONDS_MAX)


def test_what_is_no_pair_leaves_the_last_one_in_use_until_there_is_one(secure: SecureHub) -> None:
    old, new = secure.authority, Authority("new")
    issued = new.server()
    replace_file(secure.certificates.certificate, issued.chain)
    broken = time.monotonic()
    wait_until(lambda: time.monotonic() > broken + 10 * LIMITS.certificate_check_seconds)
    assert is_trusted(secure.hub, old)
    assert is_http_trusted(secure.hub, old)
    replace_file(secure.certificates.key, issued.key)
    wait_until(lambda: is_trusted(secure.hub, new))
    wait_until(lambda: is_http_trusted(secure.hub, new))


def test_the_metrics_say_how_long_the_certificate_counts(secure: SecureHub) -> None:
    context = ssl.create_default_context(cadata=secure.authority.pem.decode())
    url = f"https://{secure.hub.http_address}/metrics"
    with urllib.request.urlopen(url, timeout=SECONDS_MAX, context=context) as answer:
        (left,) = re.findall(r"^synchub_certificate_left_seconds (\S+)$", answer.read().decode(), re.M)
    assert LIFE.total_seconds() - 3_600 < float(left) < LIFE.total_seconds()


def junk(rng: random.Random) -> list[bytes]:
    """What strangers and confused clients send."""
    hello = client_hello()
    return [
        b"",
        HTTP2_PREFACE,
        b"GET /healthz HTTP/1.1\r\nHost: hub\r\n\r\n",
        hello[: len(hello) // 2],
        hello + rng.randbytes(200),
        b"\x16\x03\x01\xff\xff" + rng.randbytes(64),
        *(rng.randbytes(rng.randrange(1, 5_000)) for _ in range(30)),
        *(mutated(hello, rng) for _ in range(30)),
    ]


def mutated(words: bytes, rng: random.Random) -> bytes:
    changed = bytearray(words)
    for _ in range(rng.randrange(1, 8)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def test_junk_on_either_port_does_no_harm(secure: SecureHub, rng: random.Random) -> None:
    beat = HeartbeatRequest(hub_project="h", runtime_id="r", instance_id="i")
    with trusting(secure.hub.address, secure.authority) as channel, ExitStack() as left_open:
        with Conversation(PresenceServiceStub(channel).Heartbeat) as stream:
            stream.ask(beat)
            for port in secure.ports:
                for words in junk(rng):
                    connection = socket.create_connection(("127.0.0.1", port), SECONDS_MAX)
                    connection.sendall(words)
                    # Half of them hang up, half of them wait for an answer.
                    if rng.random() < 0.5:
                        connection.close()
                    else:
                        left_open.enter_context(connection)
            assert stream.ask(beat).HasField("hub_time")
        push(SyncServiceStub(channel), "h", batch=events(1, 3))
        assert is_trusted(secure.hub, secure.authority)
        assert is_http_trusted(secure.hub, secure.authority)
    with trusting(secure.hub.address, secure.authority) as channel:
        request = GetRunRequest(hub_project="h", project_id="p", run_id="r")
        assert SyncServiceStub(channel).GetRun(request, timeout=SECONDS_MAX).run.cursor == 3


def seconds_until_closed(connections: list[socket.socket]) -> list[float]:
    begin, ended = time.monotonic(), []
    for connection in connections:
        connection.settimeout(max(0.01, begin + HANDSHAKE_SECONDS_MAX - time.monotonic()))
        try:
            while connection.recv(4_096):
                pass
        except ConnectionError:
            pass
        ended.append(time.monotonic() - begin)
    return ended


def test_who_does_not_get_on_with_a_handshake_is_hung_up_on(tmp_path: Path) -> None:
    """With TLS on both ports, and without on gRPC's; meanwhile others get in."""
    for name in ("secure", "plain"):
        (tmp_path / name).mkdir()
    with (
        secure_hub(settings_in(tmp_path / "secure", LIMITS), tmp_path / "secure") as secure,
        HubInThread(settings_in(tmp_path / "plain")) as plain,
        ExitStack() as stack,
    ):
        hello = client_hello()
        connections: list[socket.socket] = []
        for port, beginning in (
            *((port, words) for port in secure.ports for words in (b"", hello[:20])),
            (port_of(plain.address), b""),
            (port_of(plain.address), HTTP2_PREFACE[:10]),
        ):
            for _ in range(50):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS_MAX))
                connection.sendall(beginning)
                connections.append(connection)
        begin = time.monotonic()
        assert is_trusted(secure.hub, secure.authority)
        assert is_http_trusted(secure.hub, secure.authority)
        assert time.monotonic() - begin < HANDSHAKE_SECONDS_MAX / 3
        assert max(seconds_until_closed(connections)) < HANDSHAKE_SECONDS_MAX
