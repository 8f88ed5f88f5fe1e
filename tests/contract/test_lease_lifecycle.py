"""Leases across a stop and a restart of the hub, and where no nonce is ever found."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import apsw
import grpc
import pytest

from hub.core.limits import Limits
from synchub.channel import refusal_from_status
from synchub.v1 import lease_service_pb2 as messages
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2 import HeartbeatRequest
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import Conversation, refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.leasing import (
    CALL_SECONDS_MAX,
    acquire,
    acquire_request,
    begin_request,
    nonce,
    state_of,
)

SECONDS_MAX: Final = 10.0


@contextmanager
def served(hub: HubInThread) -> Iterator[tuple[LeaseServiceStub, PresenceServiceStub]]:
    with grpc.insecure_channel(hub.address) as channel:
        yield LeaseServiceStub(channel), PresenceServiceStub(channel)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come so far"


def renewals(hub_project: str, held: messages.AcquireLeaseResponse) -> messages.RenewLeasesRequest:
    renewal = messages.LeaseRenewal(credential=held.credential)
    return messages.RenewLeasesRequest(hub_project=hub_project, renewals=[renewal])


def test_a_stop_ends_those_who_wait_and_grants_them_nothing(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, served(hub) as (stub, _):
        acquire(stub, "h")
        waiting = [
            stub.AcquireLease.future(
                acquire_request("h", holder_id=f"w{number}", secret=f"w{number}", wait=60),
                timeout=CALL_SECONDS_MAX,
            )
            for number in range(3)
        ]
        until(lambda: state_of(stub, "h").waiter_count == 3)
        hub.begin_stop()
        refusals = [refusal_of(call.result) for call in waiting]
        assert {(refusal.code, refusal.reason) for refusal in refusals} == {
            (grpc.StatusCode.UNAVAILABLE, "HUB_STOPPING")
        }
        hub.join()
    with HubInThread(settings_in(tmp_path)) as hub, served(hub) as (stub, _):
        state = state_of(stub, "h")
        assert (state.fencing_token, state.waiter_count, state.lease.holder_id) == (1, 0, "a")


def test_a_stop_gives_back_what_it_granted_to_those_it_sent_away(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with HubInThread(settings) as hub, served(hub) as (stub, _):
        with closing(apsw.Connection(str(settings.database))) as another:
            # The disk is slow: nothing is committed for a while.
            another.set_busy_timeout(round(SECONDS_MAX * 1_000))
            another.execute("BEGIN IMMEDIATE")
            waiting = stub.AcquireLease.future(acquire_request("h", wait=60, ttl=3_600), timeout=60)
            until(lambda: state_of(stub, "h").waiter_count == 1)
            hub.begin_stop()
            assert refusal_of(waiting.result).reason == "HUB_STOPPING"
        hub.join()
    with HubInThread(settings) as hub, served(hub) as (stub, _):
        lease = state_of(stub, "h").lease
        assert (lease.fencing_token, lease.state) == (1, messages.LEASE_STATE_RELEASED)


def test_a_stop_answers_the_renewals_it_took_and_ends_the_streams_in_band(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, served(hub) as (stub, _):
        held = acquire(stub, "h")
        watch = stub.WatchLeases(messages.WatchLeasesRequest(hub_project="h"), timeout=CALL_SECONDS_MAX)
        next(watch)
        with Conversation(stub.RenewLeases) as stream:
            stream.ask(renewals("h", held))
            hub.begin_stop()
            assert refusal_from_status(stream.read().error).reason == "HUB_STOPPING"
            stream.half_close()
            assert stream.refusal().reason == "HUB_STOPPING"
        assert refusal_of(lambda: list(watch)).reason == "HUB_STOPPING"
        hub.join()


def test_a_restart_keeps_leases_maintenances_receipts_and_aborts(tmp_path: Path) -> None:
    repeatable = acquire_request("h", "repeated", request_id="q", ttl=60)
    with HubInThread(settings_in(tmp_path)) as hub, served(hub) as (stub, _):
        held = stub.AcquireLease(acquire_request("h", ttl=60))
        stub.AcquireLease(repeatable)
        begun = stub.BeginMaintenance(begin_request("h", "maintained"))
        stub.AbortLease(
            messages.AbortLeaseRequest(hub_project="h", resource="r", reason=messages.ABORT_REASON_EXTERNAL)
        )
    with HubInThread(settings_in(tmp_path)) as hub, served(hub) as (stub, presence):
        renewal = messages.RenewLeaseRequest(hub_project="h", credential=held.credential)
        renewed = stub.RenewLease(renewal).lease
        assert (renewed.fencing_token, renewed.abort_reason) == (1, messages.ABORT_REASON_EXTERNAL)
        assert stub.AcquireLease(repeatable).replayed
        maintenance = messages.RenewMaintenanceRequest(hub_project="h", credential=begun.credential)
        assert stub.RenewMaintenance(maintenance).epoch == 1
        with Conversation(presence.Heartbeat) as stream:
            answer = stream.ask(HeartbeatRequest(hub_project="h", runtime_id="runtime", instance_id="one"))
        (notice,) = answer.notices
        assert notice.lease_abort == messages.LeaseAbort(
            resource="r", fencing_token=1, reason=messages.ABORT_REASON_EXTERNAL
        )


def test_calls_that_wait_count_as_open_streams(tmp_path: Path) -> None:
    with HubInThread(settings_in(tmp_path, Limits(open_streams_max=1))) as hub, served(hub) as (stub, _):
        acquire(stub, "h")
        waiting = stub.AcquireLease.future(
            acquire_request("h", holder_id="w", secret="w1", wait=60), timeout=CALL_SECONDS_MAX
        )
        until(lambda: state_of(stub, "h").waiter_count == 1)
        request = acquire_request("h", "other", wait=60)
        refusal = refusal_of(lambda: stub.AcquireLease(request, timeout=CALL_SECONDS_MAX))
        assert (refusal.code, refusal.metadata["limit"]) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "open_streams_max",
        )
        assert acquire(stub, "h", "other").lease.fencing_token == 1
        waiting.cancel()
        until(lambda: state_of(stub, "h").waiter_count == 0)


def test_no_nonce_is_stored_or_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, served(hub) as (stub, _):
        held = stub.AcquireLease(acquire_request("h", request_id="q"))
        begun = stub.BeginMaintenance(begin_request("h", "s", request_id="p"))
        renewal = messages.RenewLeaseRequest(hub_project="h", credential=held.credential)
        renewal.credential.nonce = nonce("wrong")
        refusal = refusal_of(lambda: stub.RenewLease(renewal))
        written = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    said = repr(refusal) + "".join(capfd.readouterr())
    assert refusal.reason == "LEASE_SUPERSEDED"
    for secret in (held.credential.nonce, begun.credential.nonce, nonce("wrong")):
        assert secret.encode() not in written
        assert secret not in said
    assert b"runtime" in written
