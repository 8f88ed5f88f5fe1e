"""An agent that comes back from an older disk to a hub that was pruned meanwhile: hashes are enough."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from synchub.v1.hub_service_pb2 import PruneEventsRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from tests.robustness.checker import Run
from tests.robustness.programs import HUB_PROJECT, SECONDS_MAX, Programs, running_programs
from tests.robustness.test_cloned_and_restored import alert_reasons, append, eventually

RUN: Final[Run] = ("p", "run")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with running_programs(tmp_path) as programs:
        yield programs
        programs.hub.resume()


def prune(programs: Programs) -> int:
    """Drop every payload that the hub has; return how many went."""
    time.sleep(1)  # by the wall clock of another process
    request = PruneEventsRequest(hub_project=HUB_PROJECT, older_than=Duration(seconds=1))
    with grpc.insecure_channel(programs.address) as channel:
        *_, done = HubServiceStub(channel).PruneEvents(request, timeout=SECONDS_MAX)
    assert done.is_done
    return int(done.payload_count)


@pytest.mark.timeout(180)
def test_an_agent_behind_a_pruned_hub_catches_up_by_hashes_and_goes_on(programs: Programs) -> None:
    append(programs.data, RUN, [b"1"])
    programs.wait_until_synced()
    # The copy has an event that was never acknowledged to it: so it asks, and the hub has more.
    programs.hub.pause()
    append(programs.data, RUN, [b"2"])
    programs.agent.kill()
    older = programs.folder / "older-agent"
    shutil.copytree(programs.data, older, ignore=shutil.ignore_patterns("agent.sock"))
    programs.hub.resume()
    programs.agent.start()
    append(programs.data, RUN, [b"3", b"4"])
    programs.wait_until_synced()
    assert prune(programs) == 4
    programs.agent.stop()
    shutil.rmtree(programs.data)
    older.rename(programs.data)
    programs.agent.start()
    # What it did not have comes back without its payload; new events go on behind it.
    eventually(lambda: len(logged(programs)) == 4)
    append(programs.data, RUN, [b"5"])
    programs.wait_until_synced()
    assert programs.cursors() == {RUN: 5}
    assert [event.sequence for event in programs.watched()] == [1, 2, 3, 4, 5]
    assert [event.payload for event in programs.watched()] == [b"", b"", b"", b"", b"5"]
    assert [event.get("payload_dropped", False) for event in logged(programs)] == [False] * 2 + [True] * 2 + [
        False
    ]
    assert programs.agent_command("quarantine", "list", "--json") == ""
    assert alert_reasons(programs) == set()


def logged(programs: Programs) -> list[dict[str, object]]:
    """What the agent has."""
    return [json.loads(line) for line in programs.agent_command("tail", "--json").splitlines()]
