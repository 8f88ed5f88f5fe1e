"""A real agent and a real hub that know each other by certificates, whose authorities change meanwhile."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc

from synchub.v1.sync_service_pb2 import GetRunRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.tls import (
    TRUST_DOMAIN,
    Authority,
    CertificateFolder,
    Issued,
    replace_file,
    spiffe,
    trusting,
)
from tests.integration.hub_process import SECONDS_MAX, HubProcess

AGENT: Final = Path(sys.executable).with_name("runtime-agent")
HUB_PROJECT: Final = "research"
RUNTIME: Final = "build-7"
NAME: Final = spiffe(HUB_PROJECT, RUNTIME)
SYNC_SECONDS_MAX: Final = 60.0
"""An agent comes back after at most 30 s."""


def hub_of(folder: Path, certificates: CertificateFolder, *, listen: str = "127.0.0.1:0") -> HubProcess:
    more = [
        *("--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key)),
        *("--tls-client-ca", str(certificates.client_ca), "--trust-domain", TRUST_DOMAIN),
    ]
    return HubProcess(folder / "hub.db", listen, more=more)


@contextmanager
def agent_of(folder: Path, address: str, mine: CertificateFolder) -> Iterator[None]:
    """An agent with certificates; what it trusts is in ``client_ca`` of its folder."""
    command = [
        *(str(AGENT), "start", "--hub", address, "--data", str(folder / "agent")),
        *("--hub-project", HUB_PROJECT, "--runtime-id", RUNTIME),
        *("--ca-file", str(mine.client_ca), "--cert-file", str(mine.certificate)),
        *("--key-file", str(mine.key)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS_MAX)


def append(folder: Path, payload: str) -> None:
    subprocess.run(
        [
            *(str(AGENT), "append", "--data", str(folder / "agent"), "--project", "p", "--run", "r"),
            *("--type", "line", "--payload", payload),
        ],
        check=True,
        capture_output=True,
        timeout=SECONDS_MAX,
    )


def cursor_at(address: str, authority: Authority, shown: Issued) -> int:
    """How far the run has come at the hub, as another client of the same runtime sees it."""
    with trusting(address, authority, shown=shown) as channel:
        request = GetRunRequest(project_id="p", run_id="r")
        try:
            return SyncServiceStub(channel).GetRun(request, timeout=SECONDS_MAX).run.cursor
        except grpc.RpcError:
            return 0


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SYNC_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)


def test_authorities_are_changed_as_the_page_says_and_the_agent_syncs_on_without_a_restart(
    tmp_path: Path,
) -> None:
    hubs, clients = [Authority("hubs 1"), Authority("hubs 2")], [Authority("1"), Authority("2")]
    of_hub, of_agent = CertificateFolder(tmp_path / "hub"), CertificateFolder(tmp_path / "agent-tls")
    for each in (of_hub, of_agent):
        each.folder.mkdir()
    of_hub.put(hubs[0].server())
    of_hub.put_client_ca(clients[0])
    of_agent.put(clients[0].client(NAME))
    of_agent.put_client_ca(hubs[0])
    hub = hub_of(tmp_path, of_hub)
    with agent_of(tmp_path, hub.address, of_agent):
        append(tmp_path, "first")
        wait_until(lambda: cursor_at(hub.address, hubs[0], clients[0].client(NAME)) == 1)

        # Who is to trust learns of the new authority first, then come its certificates.
        of_agent.put_client_ca(*hubs)
        of_hub.put_client_ca(*clients)
        of_hub.put(hubs[1].server())
        of_agent.put(clients[1].client(NAME))
        append(tmp_path, "second")
        wait_until(lambda: cursor_at(hub.address, hubs[1], clients[1].client(NAME)) == 2)

        # Then the old ones go. Everything connects anew to the hub that is started in its place.
        of_agent.put_client_ca(hubs[1])
        of_hub.put_client_ca(clients[1])
        hub.stop()
        append(tmp_path, "third, with no hub")
        hub = hub_of(tmp_path, of_hub, listen=hub.address)
        wait_until(lambda: cursor_at(hub.address, hubs[1], clients[1].client(NAME)) == 3)
    hub.stop()


def test_a_certificate_that_is_replaced_by_another_runtimes_syncs_nothing_and_loses_nothing(
    tmp_path: Path,
) -> None:
    authority = Authority()
    of_hub, of_agent = CertificateFolder(tmp_path / "hub"), CertificateFolder(tmp_path / "agent-tls")
    for each in (of_hub, of_agent):
        each.folder.mkdir()
    of_hub.put(authority.server())
    of_hub.put_client_ca(authority)
    of_agent.put_client_ca(authority)
    of_agent.put(authority.client(spiffe(HUB_PROJECT, "another")))
    hub = hub_of(tmp_path, of_hub)
    mine = authority.client(NAME)
    with agent_of(tmp_path, hub.address, of_agent):
        append(tmp_path, "first")
        status = [str(AGENT), "status", "--data", str(tmp_path / "agent")]

        def says_why() -> bool:
            told = subprocess.run(status, check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
            return "not the one that the credential is for" in " ".join(told.stdout.split())

        wait_until(says_why)
        assert cursor_at(hub.address, authority, mine) == 0
        replace_file(of_agent.key, mine.key)
        replace_file(of_agent.certificate, mine.chain)
        wait_until(lambda: cursor_at(hub.address, authority, mine) == 1)
    hub.stop()
