"""A hub as shipped with TLS: what it says, certificates replaced under load, and grpcurl."""

import asyncio
import base64
import json
import re
import resource
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio
import pytest

from hub.core.limits import Limits
from synchub.channel import dial, parse_addresses
from synchub.credentials import Credentials
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import GetRunRequest, PushEventsRequest, PushEventsResponse
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import Conversation
from tests.contract.secured import Bearer, make_tokens
from tests.contract.tls import TRUST_DOMAIN, Authority, CertificateFolder, client_hello, spiffe, trusting
from tests.integration.hub_process import SECONDS_MAX, HubProcess

if TYPE_CHECKING:
    from synchub.v1.sync_service_pb2_grpc import SyncServiceAsyncStub

STREAMS: Final = 64
CONNECTIONS: Final = 8
BATCH_EVENTS: Final = 32
ROTATIONS: Final = 3
FILES_MAX: Final = 200
"""What a hub may have open in the test that reaches it."""
NEWCOMER_SECONDS_MAX: Final = 40.0
"""Twice the 10 s after which who says nothing is hung up on, with room for a busy machine."""
RUNNING: Final = Path(__file__).resolve().parents[2] / "docs" / "running.md"
GRPCURL: Final = Path(__file__).resolve().parents[2] / ".venv-grpcurl" / "bin" / "grpcurl"


@contextmanager
def serving(folder: Path, certificates: CertificateFolder, *more: str) -> Iterator[HubProcess]:
    """A hub with TLS on both ports."""
    files = ["--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key)]
    if certificates.client_ca.exists():
        files += ["--tls-client-ca", str(certificates.client_ca), "--trust-domain", TRUST_DOMAIN]
    hub = HubProcess(folder / "hub.db", more=["--http", "127.0.0.1:0", *files, *more], log=folder / "hub.log")
    try:
        yield hub
    finally:
        hub.stop()


@pytest.fixture
def authority() -> Authority:
    return Authority("first")


@pytest.fixture
def certificates(tmp_path: Path, authority: Authority) -> CertificateFolder:
    folder = CertificateFolder(tmp_path)
    folder.put(authority.server())
    return folder


@pytest.fixture
def bearers(tmp_path: Path) -> Mapping[str, Bearer]:
    """Tokens that are in the store before the hub is."""
    return make_tokens(tmp_path / "hub.db", limits=Limits())


def said(folder: Path) -> list[str]:
    """What the hub said to people."""
    lines = (folder / "hub.log").read_text().splitlines()
    return [line.removeprefix("synchub: ") for line in lines if line.startswith("synchub: ")]


def events_logged(folder: Path) -> list[str]:
    lines = (folder / "hub.log").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines if not line.startswith("synchub: ")]


def is_trusted(address: str, authority: Authority) -> bool:
    with trusting(address, authority) as channel:
        try:
            HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=SECONDS_MAX)
        except grpc.RpcError:
            return False
        return True


@dataclass
class Pusher:
    """One run that is pushed to without a pause, on one stream; what was acknowledged."""

    stub: "SyncServiceAsyncStub"
    run_id: str
    acknowledged: int = 0
    answers: list[int] = field(default_factory=list)
    is_acknowledged: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, stopping: asyncio.Event) -> None:
        call = self.stub.PushEvents()
        pushed = 0
        while not stopping.is_set():
            await call.write(batch_of(self.run_id, pushed + 1))
            pushed += BATCH_EVENTS
            answer = await call.read()
            assert isinstance(answer, PushEventsResponse), f"the stream of {self.run_id} has ended"
            assert not answer.HasField("error"), answer.error
            self.acknowledged = answer.cursor
            self.answers.append(answer.accepted_count)
            self.is_acknowledged.set()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


def batch_of(run_id: str, first: int) -> PushEventsRequest:
    return PushEventsRequest(
        hub_project="h",
        project_id="p",
        run_id=run_id,
        runtime_id="r",
        events=[
            SyncEvent(sequence=sequence, event_type="line", text=f"{run_id} {sequence}")
            for sequence in range(first, first + BATCH_EVENTS)
        ],
    )


def aio_channel(address: str, authority: Authority) -> grpc.aio.Channel:
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority.pem), options=options)


async def rotate(hub: HubProcess, certificates: CertificateFolder, before: Authority) -> Authority:
    """Replace the certificate by another authority's, and return once a new client gets in by it."""
    after = Authority("after")
    certificates.put(after.server())
    deadline = time.monotonic() + SECONDS_MAX
    while not await asyncio.to_thread(is_trusted, hub.address, after):
        assert time.monotonic() < deadline, "the new certificate was not taken up"
        await asyncio.sleep(0.05)
    assert not await asyncio.to_thread(is_trusted, hub.address, before)
    return after


async def push_while_rotating(
    hub: HubProcess, certificates: CertificateFolder, authority: Authority
) -> tuple[Authority, list[Pusher]]:
    """64 streams that push all the time, and as many again on connections that came later."""
    stopping, pushers = asyncio.Event(), list[Pusher]()
    async with asyncio.TaskGroup() as tasks:
        channels: list[grpc.aio.Channel] = []
        for generation in range(ROTATIONS + 1):
            if generation:
                authority = await rotate(hub, certificates, authority)
            share = STREAMS if generation == 0 else CONNECTIONS
            channels += [aio_channel(hub.address, authority) for _ in range(CONNECTIONS)]
            for number in range(share):
                stub = SyncServiceStub(channels[-1 - number % CONNECTIONS])
                pusher = Pusher(stub, f"{generation}-{number}")
                pushers.append(pusher)
                tasks.create_task(pusher.run(stopping))
            for each in pushers:
                each.is_acknowledged.clear()
            async with asyncio.timeout(SECONDS_MAX):
                await asyncio.gather(*(each.is_acknowledged.wait() for each in pushers))
        stopping.set()
    for channel in channels:
        await channel.close()
    return authority, pushers


async def test_certificates_are_replaced_under_load_and_no_stream_and_no_event_is_lost(
    tmp_path: Path, certificates: CertificateFolder, authority: Authority
) -> None:
    with serving(tmp_path, certificates) as hub:
        last, pushers = await push_while_rotating(hub, certificates, authority)
        with trusting(hub.address, last) as channel:
            stub = SyncServiceStub(channel)
            for pusher in pushers:
                request = GetRunRequest(hub_project="h", project_id="p", run_id=pusher.run_id)
                run = stub.GetRun(request, timeout=SECONDS_MAX).run
                assert run.cursor == run.event_count == pusher.acknowledged == sum(pusher.answers) > 0
    assert len(pushers) == STREAMS + ROTATIONS * CONNECTIONS
    assert events_logged(tmp_path).count("certificates_read") > ROTATIONS


def test_a_hub_says_whom_it_lets_in(
    tmp_path: Path, certificates: CertificateFolder, authority: Authority, bearers: Mapping[str, Bearer]
) -> None:
    with serving(tmp_path, certificates):
        pass
    assert said(tmp_path) == ["credentials: tokens; TLS"]
    certificates.put_client_ca(Authority("clients"))
    certificates.key.chmod(0o644)
    with serving(tmp_path, certificates, "--credentials", "required"):
        pass
    assert said(tmp_path)[1:] == [
        f"credentials: tokens; TLS; client certificates of trust domain {TRUST_DOMAIN}"
    ]
    assert "tls_key_readable_by_others" in events_logged(tmp_path)


def test_strangers_write_nothing_into_the_log(
    tmp_path: Path, certificates: CertificateFolder, authority: Authority
) -> None:
    hello = client_hello()
    words = (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 100,
        hello,
        *(hello.replace(b"localhost", name) for name in (b"\xff\xfe lhost", b'{"event"}', b"\nforged\n")),
    )
    with serving(tmp_path, certificates) as hub:
        for address in (hub.address, hub.http_address):
            host, _, port = address.rpartition(":")
            for each in words:
                with socket.create_connection((host, int(port)), SECONDS_MAX) as connection:
                    connection.sendall(each)
                    connection.shutdown(socket.SHUT_WR)
                    with suppress(ConnectionError):
                        while connection.recv(4_096):
                            pass
        assert is_trusted(hub.address, authority)
    assert events_logged(tmp_path) == [
        *("certificates_read", "hub_access", "hub_ready", "hub_stopping", "hub_stopped")
    ]


def test_the_certificates_of_the_page_are_made_as_it_says_and_let_in(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl: it comes with the system's package of that name")
    (recipe,) = re.findall(r"^```sh\n(new_key=.*?)^```$", RUNNING.read_text(encoding="utf-8"), re.M | re.S)
    made = subprocess.run(
        ["sh", "-eu"], input=recipe, cwd=tmp_path, check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    certificates = CertificateFolder(tmp_path)
    certificates.client_ca.write_bytes((tmp_path / "ca.pem").read_bytes())
    credentials = Credentials(
        ca_file=str(tmp_path / "ca.pem"),
        certificate_file=str(tmp_path / "runtime.pem"),
        key_file=str(tmp_path / "runtime.key"),
    )
    with serving(tmp_path, certificates) as hub:
        push = PushEventsRequest(
            project_id="p",
            run_id="r",
            runtime_id="build-7",
            events=[SyncEvent(sequence=1, event_type="line")],
        )
        for host in ("127.0.0.1", "localhost"):
            addresses = parse_addresses(f"{host}:{hub.address.rpartition(':')[2]}")
            with dial(addresses, credentials=credentials) as channel:
                (answer,) = SyncServiceStub(channel).PushEvents(iter([push]), timeout=SECONDS_MAX)
                assert answer.cursor == 1


@pytest.mark.parametrize("is_secure", [True, False])
def test_connections_that_say_nothing_keep_nobody_out_for_long(
    tmp_path: Path, certificates: CertificateFolder, authority: Authority, *, is_secure: bool
) -> None:
    """As many as the hub may have open: streams go on, and newcomers get in once these are hung up on."""
    database, log = tmp_path / "hub.db", tmp_path / "hub.log"
    files = ["--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key)]
    hub = HubProcess(database, more=["--http", "127.0.0.1:0", *(files if is_secure else [])], log=log)
    resource.prlimit(hub.pid, resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))
    with ExitStack() as stack:
        stack.callback(hub.stop)
        opened = (
            trusting(hub.address, authority)
            if is_secure
            # Each connects for itself.
            else grpc.insecure_channel(hub.address, options=[("grpc.use_local_subchannel_pool", 1)])
            for _ in "12"
        )
        early = stack.enter_context(next(opened))
        with Conversation(SyncServiceStub(early).PushEvents) as stream:
            stream.ask(batch_of("r", 1))
            for address in (hub.address, hub.http_address):
                host, _, port = address.rpartition(":")
                for _ in range(FILES_MAX):
                    silent = socket.create_connection((host, int(port)), SECONDS_MAX)
                    stack.enter_context(silent)
            for first in range(1 + BATCH_EVENTS, 1 + 20 * BATCH_EVENTS, BATCH_EVENTS):
                assert stream.ask(batch_of("r", first)).accepted_count == BATCH_EVENTS
            late = stack.enter_context(next(opened))
            request = GetRunRequest(hub_project="h", project_id="p", run_id="r")
            run = SyncServiceStub(late).GetRun(request, timeout=NEWCOMER_SECONDS_MAX, wait_for_ready=True).run
            assert run.cursor == 20 * BATCH_EVENTS


def page(hub: HubProcess, path: str, *, authority: Authority | None, bearer: Bearer | None = None) -> int:
    """The status that the HTTP port answers with."""
    scheme = "http" if authority is None else "https"
    request = urllib.request.Request(f"{scheme}://{hub.http_address}{path}")
    if bearer is not None:
        request.add_header("Authorization", f"Bearer {bearer.bearer_token}")
    context = None if authority is None else ssl.create_default_context(cadata=authority.pem.decode())
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_beyond_loopback_the_metrics_are_for_administrators(
    tmp_path: Path, certificates: CertificateFolder, bearers: Mapping[str, Bearer]
) -> None:
    authority = Authority("any address")
    # A way to write 127.0.0.1 that the hub does not know for loopback.
    certificates.put(authority.server("127.1"))
    with serving(tmp_path, certificates, "--http", "127.1:0") as hub:
        assert page(hub, "/healthz", authority=authority) == 200
        assert page(hub, "/readyz", authority=authority) == 200
        assert page(hub, "/metrics", authority=authority) == 401
        for name, status in (("one/admin", 200), ("one/operator", 403), ("two/reader", 403)):
            assert page(hub, "/metrics", authority=authority, bearer=bearers[name]) == status
        for name in ("one/revoked", "one/expired"):
            assert page(hub, "/metrics", authority=authority, bearer=bearers[name]) == 401
    with serving(tmp_path, certificates) as hub:
        local = Authority("loopback")
        certificates.put(local.server())
        deadline = time.monotonic() + SECONDS_MAX
        while not is_http_trusted(hub, local):
            assert time.monotonic() < deadline
        assert page(hub, "/metrics", authority=local) == 200


def is_http_trusted(hub: HubProcess, authority: Authority) -> bool:
    try:
        return page(hub, "/healthz", authority=authority) == 200
    except urllib.error.URLError:
        return False


def grpcurl(*arguments: str, method: str, request: Mapping[str, object]) -> tuple[int, str]:
    """The exit code, and what was printed."""
    ended = subprocess.run(
        [str(GRPCURL), *arguments[:-1], "-d", json.dumps(request), arguments[-1], f"synchub.v1.{method}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.skipif(not GRPCURL.exists(), reason="no grpcurl: scripts/setup installs it on x86-64 Linux")
def test_grpcurl_shows_certificates_and_tokens(
    tmp_path: Path, certificates: CertificateFolder, authority: Authority, bearers: Mapping[str, Bearer]
) -> None:
    clients = Authority("clients")
    certificates.put_client_ca(clients)
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(authority.pem)
    mine = CertificateFolder(tmp_path / "mine")
    mine.folder.mkdir()
    mine.put(clients.client(spiffe("one", "runtime-1")))
    shown = ["-cacert", str(trusted), "-cert", str(mine.certificate), "-key", str(mine.key)]
    bearing = ["-H", f"authorization: Bearer {bearers['one/operator'].bearer_token}"]
    push = {"projectId": "one-a", "runId": "r", "runtimeId": "runtime-1"}
    payload = base64.b64encode(b"x").decode()
    event = {"sequence": "1", "eventType": "line", "payload": payload}
    with serving(tmp_path, certificates) as hub:
        alone = ["-cacert", str(trusted), hub.address]
        code, printed = grpcurl(*alone, method="HubService/GetHubInfo", request={})
        assert code != 0
        assert "CREDENTIAL" not in printed
        code, printed = grpcurl(*shown, hub.address, method="HubService/GetHubInfo", request={})
        assert code == 0, printed
        assert json.loads(printed)["hub_generation"]
        bind = {"projectId": "one-a"}
        code, printed = grpcurl(*shown, hub.address, method="SyncService/BindProject", request=bind)
        assert (code != 0, "PERMISSION_DENIED" in printed) == (True, True)
        code, printed = grpcurl(*shown, *bearing, hub.address, method="SyncService/BindProject", request=bind)
        assert code == 0, printed
        pushed = {**push, "events": [event]}
        code, printed = grpcurl(*shown, hub.address, method="SyncService/PushEvents", request=pushed)
        assert code == 0, printed
        assert json.loads(printed)["cursor"] == "1"
        foreign = {**pushed, "runtimeId": "runtime-2"}
        code, printed = grpcurl(*shown, hub.address, method="SyncService/PushEvents", request=foreign)
        assert (code != 0, "IDENTITY_MISMATCH" in printed) == (True, True)
