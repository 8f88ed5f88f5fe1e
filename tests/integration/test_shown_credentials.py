"""The programs as shipped against a hub with TLS that wants credentials: commands, and an agent whose token
or certificate is replaced while it runs."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.contract.tls import TRUST_DOMAIN, Authority, Issued, replace_file, spiffe
from tests.integration.hub_process import HUB_PROJECT, SECONDS_MAX, SYNCHUB, Told, environment_for

AGENT: Final = (sys.executable, "-m", "runtime_agent")
RUNTIME: Final = "r1"
NO_HUB_PROJECT: Final = ""


class SecuredProcess:
    """A hub's folder with its certificates and tokens; ``serving`` runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.address = ""
        self.put("hub", self.authority.server())
        replace_file(self.ca, self.authority.pem)
        self.make_token("me", "--role", "admin")

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def token(self, name: str) -> Path:
        return self.folder / f"{name}.token"

    def put(self, name: str, issued: Issued) -> tuple[str, str]:
        """Put a certificate and its key into files, and return their names."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        replace_file(key, issued.key)
        replace_file(certificate, issued.chain)
        return str(certificate), str(key)

    def make_token(self, name: str, *options: str) -> str:
        """Make a token while no hub runs, in a file of its own; return its id."""
        made = self.synchub(
            *("token", "create", "--name", name, *options, "--output", str(self.token(name)), "--json"),
            *(() if self.address else ("--db", str(self.folder / "hub.db"))),
            hub_project=HUB_PROJECT,
            token="me" if self.address else "",
        )
        assert made.code == 0, made.error
        token_id = made.json_lines()[0]["token_id"]
        assert isinstance(token_id, str)
        return token_id

    def synchub(
        self, *arguments: str, token: str = "", hub_project: str = NO_HUB_PROJECT, trusts: bool = True
    ) -> Told:
        """Run a command that shows the token of this name."""
        variables = {"SYNCHUB_CA_FILE": str(self.ca)} if trusts else {}
        shown = ("--token-file", str(self.token(token))) if token else ()
        ended = subprocess.run(
            [SYNCHUB, *arguments, *shown],
            check=False,
            capture_output=True,
            timeout=SECONDS_MAX,
            env=environment_for(self.address, SYNCHUB_HUB_PROJECT=hub_project, **variables),
        )
        return Told(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    @contextmanager
    def serving(self, *options: str) -> Iterator[None]:
        arguments = [
            *(str(SYNCHUB), "serve", "--db", str(self.folder / "hub.db"), "--listen", "127.0.0.1:0"),
            *("--http", "none", "--tls-cert", str(self.folder / "hub.pem")),
            *("--tls-key", str(self.folder / "hub.key"), *options),
        ]
        with (self.folder / "hub.log").open("wb") as log:
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), (self.folder / "hub.log").read_text()
            self.address = line.split()[2]
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS_MAX)

    @contextmanager
    def agent(self, *options: str) -> Iterator["Agent"]:
        data = self.folder / "agent"
        arguments = [
            *(*AGENT, "start", "--hub", self.address, "--data", str(data), "--hub-project", HUB_PROJECT),
            *("--runtime-id", RUNTIME, "--ca-file", str(self.ca), *options),
        ]
        with (self.folder / "agent.log").open("wb") as log:
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready: "), (self.folder / "agent.log").read_text()
            yield Agent(data)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS_MAX)


class Agent:
    """A running agent and its commands."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def append(self, text: str) -> None:
        run_agent_command(
            *("append", "--data", str(self._data), "--project", "p", "--run", "n", "--type", "t"),
            *("--text", text),
        )

    def status(self) -> dict[str, object]:
        told = run_agent_command("status", "--data", str(self._data), "--json")
        loaded = json.loads(told)
        assert isinstance(loaded, dict)
        return loaded

    def is_synced(self) -> bool:
        status = self.status()
        return (status["hub_link"], status["unsynced_event_count"]) == ("connected", 0)


def run_agent_command(*arguments: str) -> str:
    ended = subprocess.run([*AGENT, *arguments], capture_output=True, timeout=SECONDS_MAX, check=True)
    return ended.stdout.decode()


def until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.1)


def payloads(hub: SecuredProcess) -> Sequence[object]:
    told = hub.synchub("events", "p", "n", "--json", token="me")
    assert told.code == 0, told.error
    return [event["text"] for event in told.json_lines()]


@pytest.fixture
def hub(tmp_path: Path) -> SecuredProcess:
    return SecuredProcess(tmp_path)


def test_a_command_shows_a_token_over_tls_and_needs_no_hub_project(hub: SecuredProcess) -> None:
    with hub.serving():
        told = hub.synchub("runs", token="me")
        assert (told.code, told.error) == (0, "")
        assert hub.synchub("info", "--json", token="me").code == 0


def test_a_command_that_is_refused_says_why_and_what_to_do(hub: SecuredProcess) -> None:
    secret = hub.token("me").read_text().strip()
    with hub.serving():
        nothing = hub.synchub("runs", hub_project=HUB_PROJECT)
        other = hub.synchub("runs", token="me", hub_project="other")
        plain = hub.synchub("runs", token="me", trusts=False)
        strange = hub.synchub("runs", "--ca-file", str(hub.folder / "other.pem"), token="me")
        replace_file(hub.folder / "other.pem", Authority("other").pem)
        distrusted = hub.synchub("runs", "--ca-file", str(hub.folder / "other.pem"), token="me")
    assert (nothing.code, nothing.out) == (1, "")
    assert "Show a token with --token-file FILE" in nothing.error
    assert (other.code, other.out) == (1, "")
    assert "leave --hub-project out" in other.error
    assert plain.code == distrusted.code == 1
    assert "it speaks TLS where this client does not" in plain.error
    assert "is not signed by an authority that is trusted here" in distrusted.error
    assert (strange.code, strange.out) == (2, "")
    assert "cannot be read: No such file or directory" in strange.error
    for told in (nothing, other, plain, strange, distrusted):
        assert "Traceback" not in told.error
        assert secret not in told.error


def test_a_revoked_token_loses_no_append_and_its_successor_needs_no_restart(hub: SecuredProcess) -> None:
    first = hub.make_token("agent", "--role", "runtime", "--runtime", RUNTIME)
    with hub.serving():
        hub.make_token("second", "--role", "runtime", "--runtime", RUNTIME)
        with hub.agent("--token-file", str(hub.token("agent"))) as agent:
            agent.append("1")
            until(agent.is_synced)
            assert hub.synchub("token", "revoke", first, token="me").code == 0
            until(lambda: "the hub refused the credential" in str(agent.status()["hub_link_detail"]))
            status = agent.status()
            assert status["hub_link"] == "waiting"
            assert "next try in" in str(status["hub_link_detail"])
            agent.append("2")
            agent.append("3")
            assert payloads(hub) == ["1"]
            assert agent.status()["unsynced_event_count"] == 2
            replace_file(hub.token("agent"), hub.token("second").read_bytes())
            until(agent.is_synced)
            assert payloads(hub) == ["1", "2", "3"]
    log = (hub.folder / "agent.log").read_text() + (hub.folder / "hub.log").read_text()
    for name in ("agent", "second", "me"):
        secret = hub.token(name).read_text().strip().rpartition("_")[2]
        assert secret not in log


def test_an_agent_that_does_not_trust_its_hub_says_so_in_its_log_alone(hub: SecuredProcess) -> None:
    replace_file(hub.ca, Authority("other").pem)
    with hub.serving(), hub.agent("--token-file", str(hub.token("me"))) as agent:
        agent.append("1")
        until(lambda: "is not signed by an authority" in str(agent.status()["hub_link_detail"]))
    events = [json.loads(line)["event"] for line in (hub.folder / "agent.log").read_text().splitlines()]
    assert "hub_link_down" in events


def test_an_agent_is_known_by_its_certificate_which_is_replaced_while_it_runs(hub: SecuredProcess) -> None:
    replace_file(hub.folder / "clients.pem", hub.authority.pem)
    name = spiffe(HUB_PROJECT, RUNTIME)
    certificate, key = hub.put("client", hub.authority.client(name))
    mutual = ("--tls-client-ca", str(hub.folder / "clients.pem"), "--trust-domain", TRUST_DOMAIN)
    with hub.serving(*mutual), hub.agent("--cert-file", certificate, "--key-file", key) as agent:
        agent.append("1")
        until(agent.is_synced)
        hub.put("client", hub.authority.client(name))
        agent.append("2")
        until(agent.is_synced)
        told = hub.synchub("events", "p", "n", "--json", "--cert-file", certificate, "--key-file", key)
        assert [event["text"] for event in told.json_lines()] == ["1", "2"]
        without = hub.synchub("runs", hub_project=HUB_PROJECT)
        assert without.code == 1
        assert "wants a certificate that this client does not show" in without.error
