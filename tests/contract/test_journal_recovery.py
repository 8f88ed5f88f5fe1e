"""Commits that come again: answered as they were, whoever has the lease now, whatever came between."""

from pathlib import Path

import grpc
import pytest

from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.contract.conftest import settings_in
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journaling import (
    claim,
    claimed_ids,
    commit,
    commit_request,
    everything,
    full_request,
    given_back,
    leased,
    new_events,
    projection,
)
from tests.contract.leasing import begin_request


def test_a_commit_that_comes_again_is_answered_as_it_was(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    request = full_request(hub_project, leased(lease_stub, hub_project))
    first = commit(journal_stub, request)
    before = everything(journal_stub, hub_project)
    for _ in range(3):
        again = commit(journal_stub, request)
        assert again.recovered
        again.recovered = False
        assert again == first
    assert everything(journal_stub, hub_project) == before


def test_a_commit_without_events_comes_again_too(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    request = commit_request(hub_project, leased(lease_stub, hub_project), reply=b"r")
    first = commit(journal_stub, request)
    again = commit(journal_stub, request)
    assert (again.commit_time, again.reply, again.recovered) == (first.commit_time, b"r", True)


def test_the_credential_is_no_part_of_what_is_the_same(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, hub_project: str
) -> None:
    request = full_request(hub_project, leased(lease_stub, hub_project))
    first = commit(journal_stub, request)
    request.credential.CopyFrom(leased(lease_stub, hub_project, "elsewhere", holder_id="z", secret="z1"))
    again = commit(journal_stub, request)
    assert (again.recovered, again.commit_time, list(again.positions)) == (True, first.commit_time, [1, 2])


@pytest.mark.parametrize("how", ["released", "held by another", "superseded", "under maintenance"])
def test_a_commit_is_recovered_whoever_has_the_lease_now(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, *, hub_project: str, how: str
) -> None:
    credential = leased(lease_stub, hub_project)
    request = full_request(hub_project, credential)
    first = commit(journal_stub, request)
    if how == "superseded":
        leased(lease_stub, hub_project, secret="a2")
    elif how == "under maintenance":
        lease_stub.BeginMaintenance(begin_request(hub_project, "s"))
    else:
        given_back(lease_stub, hub_project, credential)
    if how == "held by another":
        other = leased(lease_stub, hub_project, holder_id="b", secret="b1")
        later = commit_request(
            hub_project, other, message_id="m2", expected_revision=2, events=new_events("later", 1)
        )
        commit(journal_stub, later)
    before = everything(journal_stub, hub_project)
    again = commit(journal_stub, request)
    assert (again.recovered, again.positions, again.reply) == (True, first.positions, first.reply)
    assert (again.previous_revision, again.revision, again.commit_time) == (0, 2, first.commit_time)
    assert everything(journal_stub, hub_project) == before


def test_commits_are_recovered_and_positions_go_on_after_a_restart(tmp_path: Path, hub_project: str) -> None:
    with HubInThread(settings_in(tmp_path)) as hub, grpc.insecure_channel(hub.address) as channel:
        credential = leased(LeaseServiceStub(channel), hub_project)
        request = full_request(hub_project, credential)
        stub = JournalServiceStub(channel)
        first = commit(stub, request)
        before = everything(stub, hub_project)
    with HubInThread(settings_in(tmp_path)) as hub, grpc.insecure_channel(hub.address) as channel:
        stub = JournalServiceStub(channel)
        assert everything(stub, hub_project) == before
        again = commit(stub, request)
        assert (again.recovered, again.commit_time, list(again.positions)) == (
            True,
            first.commit_time,
            [1, 2],
        )
        assert everything(stub, hub_project) == before
        # The lease outlives the restart, and so does the order of positions.
        more = commit_request(
            hub_project, credential, message_id="m2", expected_revision=2, events=new_events("f", 1)
        )
        assert commit(stub, more).positions == [3]
        assert projection(stub, hub_project, "p1").value == b"\0v"
        assert claimed_ids(claim(stub, hub_project)) == ["o1"]
