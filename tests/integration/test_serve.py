"""``synchub serve`` as shipped: a real process, real signals, and what a person sees when it refuses."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub

SYNCHUB: Final = Path(sys.executable).with_name("synchub")
HAS_CHANNELZ: Final = importlib.util.find_spec("grpc_channelz") is not None
SECONDS_MAX: Final = 30.0
DRAIN_SECONDS_MAX: Final = 10.0
LISTENING: Final = re.compile(r"listening on (\S+:\d+)(?: http (\S+:\d+))?\n")


@contextmanager
def serving(
    folder: Path, *arguments: str, program: tuple[str, ...] = (str(SYNCHUB),)
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A hub that is ready, and the line that it printed."""
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "SYNCHUB_LISTEN": "127.0.0.1:0"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*program, "serve", *arguments], stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()
            process.communicate(timeout=SECONDS_MAX)


def address_in(line: str) -> str:
    match = LISTENING.fullmatch(line)
    assert match is not None, line
    return match[1]


def info_of(address: str) -> str:
    with grpc.insecure_channel(address) as channel:
        return HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=10).hub_generation


def events_of(log: str) -> list[str]:
    """The names of what a hub logged; what it says to people begins with its name."""
    return [json.loads(line)["event"] for line in log.splitlines() if not line.startswith("synchub: ")]


def refused(*arguments: str) -> tuple[int, str]:
    """The exit code and what stood on standard error; nothing may stand on standard output."""
    ended = subprocess.run(
        [SYNCHUB, "serve", *arguments], check=False, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


def test_it_says_where_it_listens_once_it_answers(tmp_path: Path) -> None:
    with serving(tmp_path, "--http", "127.0.0.1:0") as (_, line):
        match = LISTENING.fullmatch(line)
        assert match is not None
        assert match[2] is not None
        info_of(match[1])
    assert (tmp_path / "data/synchub/hub.db").exists()


def test_it_runs_as_a_module_too(tmp_path: Path) -> None:
    program = (sys.executable, "-m", "hub")
    with serving(tmp_path, "--http", "none", program=program) as (_, line):
        assert LISTENING.fullmatch(line)
        assert "http" not in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_well_with_streams_open(tmp_path: Path, number: signal.Signals) -> None:
    with (
        serving(tmp_path, "--http", "none") as (process, line),
        grpc.insecure_channel(address_in(line)) as channel,
    ):
        call = PresenceServiceStub(channel).Heartbeat(
            iter([HeartbeatRequest(hub_project="h", runtime_id="r", instance_id="i")])
        )
        next(call)
        begin = time.monotonic()
        process.send_signal(number)
        assert process.wait(SECONDS_MAX) == 0
        assert time.monotonic() - begin < DRAIN_SECONDS_MAX
        call.cancel()
    assert events_of((tmp_path / "log").read_text()) == [
        *("hub_access", "hub_ready", "hub_stopping", "hub_stopped")
    ]


def test_after_a_kill_it_comes_back_as_the_same_hub(tmp_path: Path) -> None:
    generations: list[str] = []
    for _ in range(3):
        with serving(tmp_path, "--http", "none") as (process, line):
            generations.append(info_of(address_in(line)))
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS_MAX)
    assert len(set(generations)) == 1


def test_a_second_hub_of_the_store_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    database = str(tmp_path / "hub.db")
    with serving(tmp_path, "--http", "none", "--db", database) as (process, _):
        code, said = refused("--db", database, "--listen", "127.0.0.1:0", "--http", "none")
    assert (code, f"pid {process.pid}" in said, len(said.splitlines())) == (1, True, 2)


def test_a_second_hub_on_the_port_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, "--http", "none") as (_, line):
        code, said = refused("--db", str(tmp_path / "2.db"), "--listen", address_in(line), "--http", "none")
    assert (code, "cannot listen on" in said) == (1, True)


@pytest.mark.parametrize(
    "content", [b"not a database, but something that somebody needs", b"SQLite format 3\0" + bytes(200)]
)
def test_a_foreign_file_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    database = tmp_path / "foreign"
    database.write_bytes(content)
    code, said = refused("--db", str(database), "--listen", "127.0.0.1:0", "--http", "none")
    assert (code, said.startswith("synchub: ")) == (1, True)
    assert database.read_bytes() == content


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--listen", "0.0.0.0:7443"], 1, "not a loopback address"),
        (["--listen", "7443"], 2, "--listen takes HOST:PORT"),
        (["--db", "/nowhere/hub.db"], 1, "/nowhere"),
        (["--db", "postgresql://host/db"], 2, "not supported"),
        (["--config", "/nowhere/hub.toml"], 2, "is not there"),
        (["--nope"], 2, "No such option"),
        (["--tls-cert", "/nowhere.pem"], 2, "--tls-cert needs --tls-key"),
        (["--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.key"], 1, "/nowhere.pem cannot be read"),
        (["--credentials", "maybe"], 2, "the setting credentials is wrong"),
        (["--credentials", "required", "--anyone-may-connect"], 2, "contradict each other"),
        *[(["--channelz", "--listen", "127.0.0.1:0"], 1, "grpcio-channelz")] * (not HAS_CHANNELZ),
    ],
)
def test_a_persons_mistake_is_answered_with_a_sentence(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    defaults = [] if "--db" in arguments else ["--db", str(tmp_path / "hub.db")]
    exit_code, said = refused(*arguments, *defaults, "--http", "none")
    assert exit_code == code
    assert words in said
    assert not (tmp_path / "hub.db").exists() or "--channelz" in arguments


def test_who_lets_everybody_in_is_warned_loudly(tmp_path: Path) -> None:
    # A way to write 127.0.0.1 that the hub does not know for loopback.
    anywhere = ("--http", "127.1:0", "--anyone-may-connect")
    with serving(tmp_path, *anywhere) as (_, line):
        match = LISTENING.fullmatch(line)
        assert match is not None
        info_of(match[1])
    said = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("synchub: ")]
    assert said[0].startswith(f"synchub: credentials: none, anybody who reaches {match[1]} may do everything")
    assert said[1].startswith(f"synchub: WARNING: anybody on the network who reaches {match[2]} may read")
    code, told = refused("--db", str(tmp_path / "2.db"), "--listen", "127.0.0.1:0", *anywhere[:2])
    assert (code, "--http 127.1:0 is not a loopback address" in told) == (1, True)


def test_a_wrong_bound_is_refused_by_its_name(tmp_path: Path) -> None:
    config = tmp_path / "hub.toml"
    config.write_text("[limits]\npresence_ttl_seconds = -1\n", encoding="utf-8")
    code, said = refused("--config", str(config), "--db", str(tmp_path / "hub.db"))
    assert (code, "presence_ttl_seconds" in said) == (2, True)
