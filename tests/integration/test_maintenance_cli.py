"""``synchub leases maintenance`` as shipped: what an operator does at night, and what goes wrong."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.integration.hub_process import SECONDS_MAX, SYNCHUB, HubProcess, Told, environment_for, synchub
from tests.integration.leased_resource import Resource, refused, wait_until, wait_until_answered

MAINTENANCE: Final = ("leases", "maintenance")


class Operator:
    """A person with a folder for state, in front of one resource."""

    def __init__(self, address: str, resource: Resource, *, folder: Path) -> None:
        self.resource = resource
        self._address = address
        self._folder = folder

    def types(self, what: str, *options: str) -> Told:
        state = str(self._folder)
        return synchub(self._address, *MAINTENANCE, what, self.resource.name, *options, XDG_STATE_HOME=state)

    def files(self) -> list[Path]:
        return [path for path in self._folder.rglob("*") if path.is_file()]

    @contextmanager
    def holding(self, *options: str) -> Iterator["subprocess.Popen[str]"]:
        """A `hold` that has begun."""
        arguments = [str(SYNCHUB), *MAINTENANCE, "hold", self.resource.name, *options]
        environment = environment_for(self._address, XDG_STATE_HOME=str(self._folder))
        with subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            try:
                wait_until(self.resource.is_under_maintenance)
                yield process
            finally:
                process.kill()


@pytest.fixture
def operator(lease_hub: HubProcess, resource: Resource, tmp_path: Path) -> Operator:
    return Operator(lease_hub.address, resource, folder=tmp_path / "state")


def test_a_maintenance_takes_a_resource_away_and_gives_it_back(operator: Operator) -> None:
    resource = operator.resource
    before = resource.acquire()
    begun = operator.types("begin", "--ttl", "5m")
    token = before.lease.fencing_token + 1
    assert (begun.code, begun.error) == (0, "")
    assert f"{resource.name} is under maintenance until" in begun.out
    assert f"(5 min 0 s from now), epoch 1, token {token}" in begun.out
    assert resource.renewal_refused(before.credential) == "LEASE_FENCED"
    assert refused(resource.acquire) == "RESOURCE_UNDER_MAINTENANCE"
    assert operator.types("finish").out == f"{resource.name} is free again, epoch 1\n"
    assert operator.files() == []
    assert resource.acquire().lease.fencing_token == token + 1


def test_the_secret_is_in_a_file_of_one_user_and_nowhere_else(operator: Operator) -> None:
    told = [operator.types("begin"), operator.types("begin", "--json"), operator.types("renew", "--json")]
    (file,) = operator.files()
    assert file.stat().st_mode & 0o777 == 0o600
    assert str(file) in told[0].out
    (facts,) = told[1].json_lines()
    assert facts["credential_file"] == str(file)
    nonce = json.loads(file.read_text())["nonce"]
    told.append(operator.types("finish", "--json"))
    assert [each.code for each in told] == [0, 0, 0, 0]
    assert all(nonce not in each.out + each.error for each in told)


def test_begun_again_it_is_the_same_with_another_end(operator: Operator) -> None:
    first, again = (operator.types("begin", "--ttl", ttl, "--json").json_lines()[0] for ttl in ("5m", "10m"))
    assert (first["epoch"], first["fencing_token"]) == (again["epoch"], again["fencing_token"])
    assert (first["ttl"], again["ttl"]) == (300.0, 600.0)


def test_a_span_that_is_too_long_is_told(operator: Operator) -> None:
    told = operator.types("begin", "--ttl", "9h")
    assert "(1 h 0 min from now)" in told.out
    assert "that is the longest the hub grants at a time" in told.out


def test_renew_moves_the_end(operator: Operator) -> None:
    operator.types("begin", "--ttl", "10s")
    told = operator.types("renew", "--ttl", "20m")
    assert "(20 min 0 s from now), epoch 1" in told.out
    assert operator.resource.state().maintenance.ttl.seconds == 1_200


def test_one_that_ended_by_itself_is_begun_anew_with_the_next_token(operator: Operator) -> None:
    (first,) = operator.types("begin", "--ttl", "1s", "--json").json_lines()
    operator.resource.wait_until_free()
    late = operator.types("renew")
    assert (late.code, late.out) == (1, "")
    assert "has ended by itself" in late.error
    (second,) = operator.types("begin", "--json").json_lines()
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert operator.types("finish").code == 0


def test_one_that_ended_by_itself_can_be_finished(operator: Operator) -> None:
    operator.types("begin", "--ttl", "1s")
    operator.resource.wait_until_free()
    told = operator.types("finish")
    assert (told.code, operator.files()) == (0, [])


def test_another_persons_maintenance_is_not_disturbed(
    operator: Operator, lease_hub: HubProcess, tmp_path: Path
) -> None:
    operator.types("begin", "--holder", "anna")
    other = Operator(lease_hub.address, operator.resource, folder=tmp_path / "other")
    told = other.types("begin")
    assert (told.code, told.out) == (1, "")
    assert "is under maintenance by 'anna' until" in told.error
    assert other.files() == []
    told = other.types("finish")
    assert told.code == 1
    assert "no credential of a maintenance" in told.error
    (file,) = operator.files()
    assert other.types("finish", "--credential", str(file)).code == 0


def test_a_credential_of_another_resource_is_refused(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "credential.json"
    file.write_text('{"resource": "another", "nonce": "secret-secret-secret-secret"}')
    for what in ("begin", "renew", "finish"):
        told = operator.types(what, "--credential", str(file))
        assert (told.code, told.out) == (1, "")
        assert "is the credential of another resource: another" in told.error
        assert "secret-secret" not in told.error
    assert not operator.resource.is_under_maintenance()


def test_a_begin_without_an_answer_goes_on_when_it_is_given_again(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "credential.json"
    told = operator.types("begin", "--credential", str(file), "--hub", "127.0.0.1:1")
    assert (told.code, told.out) == (1, "")
    assert "Give the same command again" in told.error
    asked = json.loads(file.read_text())
    assert operator.types("begin", "--credential", str(file)).code == 0
    begun = json.loads(file.read_text())
    assert begun == {**asked, "fencing_token": 1}
    assert operator.types("finish", "--credential", str(file)).code == 0


def test_a_command_runs_while_the_resource_is_out_of_use(operator: Operator) -> None:
    resource = operator.resource
    token = resource.acquire().lease.fencing_token + 1
    script = 'echo "$SYNCHUB_RESOURCE $SYNCHUB_FENCING_TOKEN $SYNCHUB_EPOCH"; read line; exit 7'
    with operator.holding("--", "sh", "-c", script) as hold:
        assert refused(resource.acquire) == "RESOURCE_UNDER_MAINTENANCE"
        told = hold.communicate("go on\n", timeout=SECONDS_MAX)
    assert told[0] == f"{resource.name} {token} 1\n"
    assert hold.returncode == 7
    assert f"{resource.name} is free again" in told[1]
    assert not resource.is_under_maintenance()
    assert operator.files() == []


def test_without_a_command_it_lasts_until_it_is_interrupted(operator: Operator) -> None:
    resource = operator.resource
    with operator.holding("--ttl", "4s") as hold:
        begun = resource.state().maintenance
        wait_until(lambda: resource.state().maintenance.expire_time.seconds > begun.expire_time.seconds + 1)
        assert refused(resource.acquire) == "RESOURCE_UNDER_MAINTENANCE"
        hold.send_signal(signal.SIGINT)
        _, said = hold.communicate(timeout=SECONDS_MAX)
    assert hold.returncode == 0
    assert f"{resource.name} is free again" in said
    assert not resource.is_under_maintenance()


def test_a_signal_is_handed_on_and_the_resource_given_back_after_the_command(operator: Operator) -> None:
    script = "trap 'echo told; exit 4' TERM; echo ready; while :; do sleep 0.05; done"
    with operator.holding("--", "sh", "-c", script) as hold:
        assert hold.stdout is not None
        assert hold.stdout.readline() == "ready\n"
        hold.terminate()
        out, _ = hold.communicate(timeout=SECONDS_MAX)
    assert (out, hold.returncode) == ("told\n", 4)
    assert not operator.resource.is_under_maintenance()


def test_a_command_is_stopped_when_the_maintenance_was_lost_in_a_pause(operator: Operator) -> None:
    resource = operator.resource
    script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with operator.holding("--ttl", "2s", "--", "sh", "-c", script) as hold:
        assert hold.stdout is not None
        assert hold.stdout.readline() == "ready\n"
        hold.send_signal(signal.SIGSTOP)
        resource.wait_until_free()
        taken = resource.acquire()
        hold.send_signal(signal.SIGCONT)
        out, said = hold.communicate(timeout=SECONDS_MAX)
    assert (out, hold.returncode) == ("told\n", 1)
    assert f"the maintenance of {resource.name} was lost" in said
    assert resource.renewal_refused(taken.credential) == ""


def test_a_hold_goes_on_through_a_restart_of_the_hub(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub.db")
    try:
        with grpc.insecure_channel(hub.address) as channel:
            resource = Resource(LeaseServiceStub(channel), "db")
            operator = Operator(hub.address, resource, folder=tmp_path / "state")
            with operator.holding() as hold:
                begun = resource.state().maintenance
                hub.kill()
                hub = HubProcess(tmp_path / "hub.db", listen=hub.address)
                wait_until_answered(resource.state)
                renew_time = begun.renew_time.ToNanoseconds()
                wait_until(lambda: resource.state().maintenance.renew_time.ToNanoseconds() > renew_time)
                assert resource.state().maintenance.fencing_token == begun.fencing_token
                hold.send_signal(signal.SIGTERM)
                hold.communicate(timeout=SECONDS_MAX)
            assert hold.returncode == 0
    finally:
        hub.stop()


def test_a_command_is_stopped_when_the_hub_stays_away_for_too_long(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub.db")
    script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    try:
        with grpc.insecure_channel(hub.address) as channel:
            resource = Resource(LeaseServiceStub(channel), "db")
            operator = Operator(hub.address, resource, folder=tmp_path / "state")
            with operator.holding("--ttl", "2s", "--", "sh", "-c", script) as hold:
                assert hold.stdout is not None
                assert hold.stdout.readline() == "ready\n"
                hub.kill()
                out, said = hold.communicate(timeout=SECONDS_MAX)
    finally:
        hub.kill()
    assert (out, hold.returncode) == ("told\n", 1)
    assert "the maintenance of db was lost" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["begin", "db", "--ttl", "30"], 2, "--ttl '30' is no span of time"),
        (["begin"], 2, "Missing argument"),
        (["begin", "db\x1b"], 1, "has the control code point U+001B"),
        (["hold", "db", "--holder", " "], 1, "begins or ends with white space"),
        (["finish", "db", "--credential", "/dev/null"], 1, "/dev/null is not the credential"),
        (["begin", "db", "--credential", "/dev/null/file"], 1, "cannot read /dev/null/file"),
        (["begin", "db", "--hub", "127.0.0.1:1"], 1, "no hub can be reached at 127.0.0.1:1"),
        (["hold", "db", "--hub", "127.0.0.1:1"], 1, "no hub can be reached at 127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_sentence_and_never_a_traceback(
    lease_hub: HubProcess, *, arguments: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    told = synchub(lease_hub.address, *MAINTENANCE, *arguments, XDG_STATE_HOME=str(tmp_path))
    assert told.code == code
    assert sentence in told.error
    assert "Traceback" not in told.error
    assert "\x1b" not in told.error
    assert (told.out, list(tmp_path.rglob("*.json"))) == ("", [])
