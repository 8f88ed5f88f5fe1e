"""The log of a real hub: JSON lines that say which call, and never a payload, a nonce or a token."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.v1.lease_service_pb2 import AcquireLeaseRequest, RenewLeaseRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.sync_event_pb2 import SyncEvent
from synchub.v1.sync_service_pb2 import GetRunRequest, PushEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub

SYNCHUB: Final = Path(sys.executable).with_name("synchub")
SECONDS_MAX: Final = 30.0
PAYLOAD: Final = "the-payload-swordfish"
NONCE: Final = "the-nonce-swordfish-0123456789"
WRONG_TOKEN: Final = "synchub_" + "0" * 20 + "_" + "5" * 64


class LoggingHub:
    """A hub as it is shipped, and what it logs."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    SYNCHUB,
                    "serve",
                    *("--db", str(folder / "hub.db"), "--listen", "127.0.0.1:0", "--http", "none"),
                    *arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), (line, self._log.read_text())
        self.address = line.split()[2]

    def stopped(self) -> str:
        """Stop it, and return all that it logged."""
        self._process.terminate()
        self._process.communicate(timeout=SECONDS_MAX)
        return self._log.read_text()


def make_token(folder: Path) -> str:
    arguments = ["--hub-project", "h", "--role", "runtime", "--name", "the-runtime", "--json"]
    made = subprocess.run(
        [SYNCHUB, "token", "create", "--db", str(folder / "hub.db"), *arguments],
        capture_output=True,
        check=True,
        timeout=SECONDS_MAX,
        text=True,
    )
    token: str = json.loads(made.stdout)["bearer_token"]
    return token


def exercise(address: str, token: str) -> None:
    """Push, hold a lease, and be refused in many ways, with secrets in every place that may hold one."""
    metadata = (("authorization", f"Bearer {token}"), ("x-request-id", "the-request"))
    wrong = (("authorization", f"Bearer {WRONG_TOKEN}"), ("x-request-id", "the-wrong-one"))
    with grpc.insecure_channel(address) as channel:
        sync, lease = SyncServiceStub(channel), LeaseServiceStub(channel)
        event = SyncEvent(sequence=1, event_type="line", payload=PAYLOAD.encode())
        pushed = PushEventsRequest(project_id="p", run_id="r", runtime_id="r", events=[event])
        list(sync.PushEvents(iter([pushed]), metadata=metadata, timeout=10))
        event.text = PAYLOAD + "-another"
        reused = PushEventsRequest(project_id="p", run_id="r", runtime_id="r", events=[event])
        list(sync.PushEvents(iter([reused]), metadata=metadata, timeout=10))
        claim = AcquireLeaseRequest(resource="l", runtime_id="r", holder_id="h", nonce=NONCE)
        granted = lease.AcquireLease(claim, metadata=metadata, timeout=10)
        renewal = RenewLeaseRequest(credential=granted.credential)
        renewal.credential.fencing_token += 1
        for call in (
            lambda: lease.RenewLease(renewal, metadata=metadata, timeout=10),
            lambda: lease.AcquireLease(
                AcquireLeaseRequest(resource=NONCE, nonce=NONCE + "!"), metadata=metadata, timeout=10
            ),
            lambda: sync.GetRun(GetRunRequest(project_id="p", run_id="r"), metadata=wrong, timeout=10),
        ):
            with pytest.raises(grpc.RpcError):
                call()


def test_a_log_says_which_call_and_never_a_secret(tmp_path: Path) -> None:
    token = make_token(tmp_path)
    hub = LoggingHub(tmp_path, "--log-format", "json", "--log-level", "debug")
    try:
        exercise(hub.address, token)
    finally:
        log = hub.stopped()
    for secret in (PAYLOAD, NONCE, token, token.rpartition("_")[2], WRONG_TOKEN, "5" * 64):
        assert secret not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert all(not line.startswith("{") or json.loads(line) for line in log.splitlines())
    refused = [line for line in lines if line["event"] == "call_refused"]
    assert [(line["reason"], line["level"], line["method"], line["request_id"]) for line in refused] == [
        ("LEASE_SUPERSEDED", "debug", "RenewLease", "the-request"),
        ("INVALID_REQUEST", "debug", "AcquireLease", "the-request"),
        ("CREDENTIAL_INVALID", "warning", "GetRun", "the-wrong-one"),
    ]
    assert {(line.get("credential"), line.get("hub_project")) for line in refused} == {
        ("the-runtime", "h"),
        (None, None),
    }
    assert all(line["peer"].startswith("ipv4:127.0.0.1:") for line in refused)


def test_a_log_for_people_is_no_json_and_the_level_is_kept(tmp_path: Path) -> None:
    hub = LoggingHub(tmp_path, "--log-format", "console", "--log-level", "warning")
    log = hub.stopped()
    assert "hub_ready" not in log
    other = tmp_path / "other"
    other.mkdir()
    told = LoggingHub(other, "--log-format", "console").stopped()
    (ready,) = [line for line in told.splitlines() if "hub_ready" in line]
    assert not ready.startswith("{")
    assert "\x1b" not in told


@pytest.mark.parametrize(("flag", "value"), [("--log-format", "xml"), ("--log-level", "loud")])
def test_a_format_or_level_that_is_none_is_refused_by_name(tmp_path: Path, flag: str, value: str) -> None:
    ended = subprocess.run(
        [SYNCHUB, "serve", "--db", str(tmp_path / "hub.db"), flag, value],
        capture_output=True,
        check=False,
        timeout=SECONDS_MAX,
        text=True,
    )
    assert ended.returncode in (1, 2)
    assert flag.removeprefix("--").replace("-", "_") in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "hub.db").exists()
