"""``synchub leases`` as shipped: what a person sees of leases, and how one stops a holder."""

import json
import signal
import subprocess
import threading
from pathlib import Path

import grpc
import pytest

from synchub.v1.lease_service_pb2 import LeaseState
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.integration.hub_process import SECONDS_MAX, SYNCHUB, HubProcess, environment_for, synchub
from tests.integration.leased_resource import Resource, wait_until, wait_until_answered


def listed(lease_hub: HubProcess, resource: Resource, *options: str) -> list[dict[str, object]]:
    lines = synchub(lease_hub.address, "leases", "list", "--json", *options).json_lines()
    return [each for each in lines if each["resource"] == resource.name]


def test_leases_are_a_table_for_people_and_json_for_programs(
    lease_hub: HubProcess, resource: Resource
) -> None:
    granted = resource.acquire()
    (lease,) = listed(lease_hub, resource)
    assert (lease["fencing_token"], lease["state"]) == (granted.lease.fencing_token, "LIVE")
    assert (lease["ttl"], lease["is_maintenance"]) == (60.0, False)
    table = synchub(lease_hub.address, "leases", "list").out
    assert table.splitlines()[0].split()[:5] == ["RESOURCE", "STATE", "TOKEN", "EPOCH", "HOLDER"]
    (row,) = [line for line in table.splitlines() if line.startswith(resource.name)]
    assert "The worker" in row
    assert granted.credential.nonce not in table + json.dumps(lease)


def test_labels_steer_no_terminal(lease_hub: HubProcess, resource: Resource) -> None:
    resource.acquire()
    for arguments in (["list"], ["show", resource.name]):
        shown = synchub(lease_hub.address, "leases", *arguments).out
        assert "\x1b" not in shown
        assert "red \\x1b[31m\\n" in shown


def test_ended_leases_are_listed_when_asked_for(lease_hub: HubProcess, resource: Resource) -> None:
    resource.release(resource.acquire().credential)
    assert listed(lease_hub, resource) == []
    (lease,) = listed(lease_hub, resource, "--all")
    assert lease["state"] == "RELEASED"


def test_a_resource_is_shown_with_who_waits_for_it(lease_hub: HubProcess, resource: Resource) -> None:
    first = resource.acquire("first", ttl=3_600)
    waiting = threading.Thread(target=lambda: resource.acquire("second", wait=SECONDS_MAX))
    waiting.start()
    wait_until(lambda: resource.state().waiter_count == 1)
    shown = synchub(lease_hub.address, "leases", "show", resource.name).out
    (told,) = synchub(lease_hub.address, "leases", "show", resource.name, "--json").json_lines()
    resource.release(first.credential)
    waiting.join()
    facts = dict(line.split(maxsplit=1) for line in shown.splitlines()[:6] if " " in line)
    assert facts["state"].strip() == "LIVE"
    assert facts["holder"].strip() == "The first (first)"
    assert " UTC (in 59 min " in shown
    assert "The second" in shown.splitlines()[-1]
    assert told["fencing_token"] == first.lease.fencing_token
    assert isinstance(told["waiters"], list)
    assert [waiter["holder_id"] for waiter in told["waiters"]] == ["second"]


def test_a_resource_that_was_never_used_is_shown_as_free(lease_hub: HubProcess, resource: Resource) -> None:
    shown = synchub(lease_hub.address, "leases", "show", resource.name)
    assert shown.code == 0
    assert "nobody ever held it" in shown.out


def test_an_abort_reaches_the_holder_and_says_whom_it_asks(lease_hub: HubProcess, resource: Resource) -> None:
    granted = resource.acquire()
    told = synchub(lease_hub.address, "leases", "abort", resource.name)
    token = granted.lease.fencing_token
    assert told.out == (
        f"asked The worker (worker) of laptop to stop: {resource.name}, token {token}, EXTERNAL\n"
    )
    renewed = resource.renew(granted.credential)
    assert (renewed.is_abort_requested, renewed.abort_reason) == (True, 2)


def test_an_abort_of_another_tenure_changes_nothing(lease_hub: HubProcess, resource: Resource) -> None:
    granted = resource.acquire()
    token = str(granted.lease.fencing_token + 1)
    told = synchub(lease_hub.address, "leases", "abort", resource.name, "--token", token)
    assert (told.code, told.out) == (1, "")
    assert resource.name in told.error
    assert not resource.state().lease.is_abort_requested
    lines = synchub(
        lease_hub.address, "leases", "abort", resource.name, "--reason", "internal", "--json"
    ).json_lines()
    assert [each["abort_reason"] for each in lines] == ["INTERNAL"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["abort", "nobodys"], 1, "nobody holds resource 'nobodys'"),
        (["abort", "db", "--reason", "odd"], 2, "--reason 'odd' is not one of internal, external"),
        (["abort", "db", "--token", "-1"], 2, "--token"),
        (["show"], 2, "Missing argument"),
        (["show", "db\x1b"], 1, "has the control code point U+001B"),
        (["list", "--hub-project", ""], 2, "no hub project is given"),
        (["watch", "--hub", "127.0.0.1:1"], 1, "no hub can be reached at 127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_sentence_and_never_a_traceback(
    lease_hub: HubProcess, *, arguments: list[str], code: int, sentence: str
) -> None:
    told = synchub(lease_hub.address, "leases", *arguments)
    assert told.code == code
    assert sentence in told.error
    assert "Traceback" not in told.error
    assert told.out == ""


def test_a_watch_shows_what_changed_while_the_hub_was_away(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub.db")
    arguments = [str(SYNCHUB), "leases", "watch"]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_for(hub.address, PYTHONUNBUFFERED="1"),
    ) as watch:
        assert watch.stdout is not None
        assert watch.stderr is not None
        try:
            with grpc.insecure_channel(hub.address) as channel:
                stub = LeaseServiceStub(channel)
                kept, lost = Resource(stub, "kept"), Resource(stub, "lost")
                kept_credential = kept.acquire().credential
                assert watch.stdout.readline().startswith("kept LIVE token 1 epoch 0, holder The worker")
                lost.acquire(ttl=2)
                assert watch.stdout.readline().startswith("lost LIVE token 1")
                hub.stop()
                assert "trying again in" in watch.stderr.readline()
                watch.send_signal(signal.SIGSTOP)
                hub = HubProcess(tmp_path / "hub.db", listen=hub.address)
                wait_until_answered(lambda: kept.renew(kept_credential))
                wait_until(lambda: lost.state().lease.state == LeaseState.LEASE_STATE_EXPIRED)
                watch.send_signal(signal.SIGCONT)
                assert watch.stdout.readline().startswith("lost EXPIRED token 1")
                kept.release(kept_credential)
                assert watch.stdout.readline().startswith("kept RELEASED token 1")
            watch.send_signal(signal.SIGINT)
            out, error = watch.communicate(timeout=SECONDS_MAX)
            assert (out, watch.returncode) == ("", 130)
            assert "Traceback" not in error
        finally:
            watch.kill()
            hub.stop()


def test_a_watch_for_programs_has_each_renewal(lease_hub: HubProcess, resource: Resource) -> None:
    arguments = [str(SYNCHUB), "leases", "watch", "--json"]
    environment = environment_for(lease_hub.address)
    granted = resource.acquire()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as watch:
        assert watch.stdout is not None
        try:
            lines = (json.loads(line) for line in watch.stdout)
            ours = (each for each in lines if each["resource"] == resource.name)
            first = next(ours)
            resource.renew(granted.credential)
            renewed = next(ours)
            resource.release(granted.credential)
            released = next(ours)
        finally:
            watch.kill()
    assert first["fencing_token"] == renewed["fencing_token"] == granted.lease.fencing_token
    assert renewed["expire_time"] > first["expire_time"]
    assert released["state"] == "RELEASED"
