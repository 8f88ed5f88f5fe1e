"""A hub restored from a backup: whoever knew it before learns of it, and what runtimes have comes back."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import grpc
import pytest

from hub.core.limits import Limits
from hub.core.restore import Restored
from hub.store.sqlite.backup import take_backup
from hub.store.sqlite.restore import Restore, restore_backup, restore_in_place
from synchub.channel import Refusal
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2 import WatchJournalRequest
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2 import LeaseCredential, ListLeasesRequest, RenewLeaseRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.sync_service_pb2 import WatchEventsRequest
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conversation import refusal_of
from tests.contract.journaling import commit, commit_request, leased, new_events
from tests.contract.leasing import CALL_SECONDS_MAX
from tests.robustness.checker import check
from tests.robustness.programs import HUB_PROJECT, Programs, running_programs
from tests.robustness.test_cloned_and_restored import OTHER, RUN, alert_reasons, append, eventually

LIMITS: Final = Limits()
TOKENS_BEFORE: Final = 5
"""Tenures of the resource after the backup: their tokens are lost with the tail."""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with running_programs(tmp_path) as programs:
        yield programs


@dataclass
class Known:
    """What a watcher, a journal's reader and a holder know of the hub."""

    hub_generation: str
    position: int
    journal_position: int
    credential: LeaseCredential


class Acquaintance:
    """Somebody who knows the hub, whichever store it has."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.sync = SyncServiceStub(self.channel)
        self.leases = LeaseServiceStub(self.channel)
        self.journal = JournalServiceStub(self.channel)

    def know(self, credential: LeaseCredential) -> Known:
        info = HubServiceStub(self.channel).GetHubInfo(GetHubInfoRequest(), timeout=CALL_SECONDS_MAX)
        return Known(info.hub_generation, *self.heads(), credential)

    def heads(self) -> tuple[int, int]:
        """The heads of events and journal, as the first answers without any say."""
        watch = WatchEventsRequest(hub_project=HUB_PROJECT, from_now=True)
        watch_journal = WatchJournalRequest(hub_project=HUB_PROJECT, from_now=True)
        events = self.sync.WatchEvents(watch, timeout=CALL_SECONDS_MAX)
        journal = self.journal.WatchJournal(watch_journal, timeout=CALL_SECONDS_MAX)
        heads = next(events).progress_position, next(journal).progress_position
        events.cancel()
        journal.cancel()
        return heads

    def watch(self, known: Known, after_position: int) -> int:
        """Resume as somebody who knows that generation; return how many events come before the head."""
        request = WatchEventsRequest(
            hub_project=HUB_PROJECT, hub_generation=known.hub_generation, after_position=after_position
        )
        call = self.sync.WatchEvents(request, timeout=CALL_SECONDS_MAX)
        count = 0
        for answer in call:
            if not answer.events:
                break
            count += len(answer.events)
        call.cancel()
        return count

    def watch_journal(self, known: Known, after_position: int) -> int:
        request = WatchJournalRequest(
            hub_project=HUB_PROJECT, hub_generation=known.hub_generation, after_position=after_position
        )
        call = self.journal.WatchJournal(request, timeout=CALL_SECONDS_MAX)
        answer = next(call)
        call.cancel()
        return len(answer.events)

    def commit(self, credential: LeaseCredential, message_id: str, revision: int) -> None:
        request = commit_request(
            HUB_PROJECT,
            credential,
            message_id=message_id,
            expected_revision=revision,
            events=new_events(message_id, 2),
        )
        commit(self.journal, request)

    def renewal_of(self, credential: LeaseCredential) -> str:
        """Why a renewal is refused."""
        request = RenewLeaseRequest(hub_project=HUB_PROJECT, credential=credential)
        return refusal_of(lambda: self.leases.RenewLease(request, timeout=CALL_SECONDS_MAX)).reason

    def acquire(self, secret: str) -> LeaseCredential:
        """A tenure of the stream's resource; another secret is a new one at once."""
        return leased(self.leases, HUB_PROJECT, secret=secret)


def assert_changed(call: Callable[[], object], lowest: int) -> None:
    refusal: Refusal = refusal_of(call)
    assert refusal.reason == "GENERATION_CHANGED"
    assert refusal.metadata["lowestPosition"] == str(lowest)


def by_restoring(programs: Programs, backup: Path) -> None:
    """Restore as an operator does whose disk is gone."""
    for path in programs.folder.glob("hub.db*"):
        path.unlink()
    plan = Restore(uuid4().hex, time.time_ns())
    *_, last = restore_backup(backup, programs.database, restore=plan, limits=LIMITS)
    assert isinstance(last, Restored)


def by_copying(programs: Programs, backup: Path) -> None:
    """Bring the file back by other means, and say so."""
    for path in programs.folder.glob("hub.db*"):
        path.unlink()
    shutil.copy(backup, programs.database)
    plan = Restore(uuid4().hex, time.time_ns())
    *_, last = restore_in_place(programs.database, restore=plan, limits=LIMITS)
    assert isinstance(last, Restored)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("restore", [by_restoring, by_copying])
def test_a_restored_hub_gets_its_tail_back_and_nothing_from_before_holds_any_more(
    programs: Programs, restore: Callable[[Programs, Path], None]
) -> None:
    someone = Acquaintance(programs.address)
    append(programs.data, RUN, [b"1", b"2"])
    programs.wait_until_synced()
    first = someone.acquire("a1")
    someone.commit(first, "m1", 0)
    before = someone.know(first)
    backup = programs.folder / "backup.db"
    list(take_backup(programs.database, backup, limits=LIMITS))

    append(programs.data, RUN, [b"3", b"4"])
    append(programs.data, OTHER, [b"a"])
    programs.wait_until_synced()
    lost = [someone.acquire(f"b{number}") for number in range(TOKENS_BEFORE)][-1]
    someone.commit(lost, "m2", 2)
    after = someone.know(lost)
    assert (after.position, after.journal_position) == (before.position + 3, before.journal_position + 2)
    someone.channel.close()
    programs.hub.stop()
    restore(programs, backup)
    programs.hub.start()

    someone = Acquaintance(programs.address)
    # Positions of the lost tail do not hold; those up to the backup do.
    assert_changed(lambda: someone.watch(after, after.position), before.position)
    assert_changed(lambda: someone.watch_journal(after, after.journal_position), before.journal_position)
    assert someone.watch_journal(after, before.journal_position - 1) == 1
    # Nobody holds anything, and no token is given again.
    leases = someone.leases.ListLeases(ListLeasesRequest(hub_project=HUB_PROJECT), timeout=CALL_SECONDS_MAX)
    assert list(leases.leases) == []
    for credential in (first, lost):
        assert someone.renewal_of(credential) in {"LEASE_EXPIRED", "LEASE_SUPERSEDED"}
        assert refusal_of(partial(someone.commit, credential, "m3", 2)).reason == "STALE_LEASE"
    regained = someone.acquire("c1")
    assert regained.fencing_token > lost.fencing_token
    someone.commit(regained, "m3", 2)
    # The runtime pushes again what the backup does not have, and goes on.
    append(programs.data, RUN, [b"5"])
    wanted = {RUN: [b"1", b"2", b"3", b"4", b"5"], OTHER: [b"a"]}
    eventually(lambda: check(wanted, programs.watched()).faults == [])
    programs.wait_until_synced()
    assert someone.watch(after, before.position) == 4
    # That the hub went back is known to all: nothing was lost unseen.
    assert alert_reasons(programs) == set()
    someone.channel.close()
