"""``synchub journal`` and ``synchub outbox`` as shipped: what people and programs see of shared streams."""

import json
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc
import pytest

from synchub.v1.journal_service_pb2 import (
    AcknowledgeOutboxMessageRequest,
    ClaimOutboxMessagesRequest,
    CommitRequest,
    NewJournalEvent,
    NewOutboxMessage,
    ReturnOutboxMessageRequest,
)
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.integration.hub_process import (
    HUB_PROJECT,
    SECONDS_MAX,
    SYNCHUB,
    HubProcess,
    environment_for,
    synchub,
)
from tests.integration.leased_resource import Resource, wait_until

ODD_PAYLOADS: Final = [b"first", b"\xff\x00 no text", "é \x1b[31m".encode()]
TRIES_MAX: Final = 10
EVENTS_OF_TWO_PAGES: Final = 130
STORED_EVENTS: Final = 2


class Stream:
    """A stream under a lease of its own, and short ways to the calls on it and its outbox."""

    def __init__(self, channel: grpc.Channel, stream_id: str) -> None:
        self.stream_id = stream_id
        self._stub = JournalServiceStub(channel)
        self._resource = Resource(LeaseServiceStub(channel), stream_id)
        self._credential = self._resource.acquire().credential
        self._revision = 0
        self._commits = 0

    def commit(self, *payloads: bytes, event_type: str = "noted", messages: int = 0) -> None:
        """Commit an event for each payload, and messages for the stream's own destination."""
        self._commits += 1
        name = f"{self.stream_id} {self._commits}"
        request = CommitRequest(
            hub_project=HUB_PROJECT,
            message_id=name,
            stream_id=self.stream_id,
            credential=self._credential,
            expected_revision=self._revision,
            events=[
                NewJournalEvent(event_id=f"{name} event {number}", event_type=event_type, payload=payload)
                for number, payload in enumerate(payloads, 1)
            ],
            outbox_messages=[
                NewOutboxMessage(
                    outbox_id=f"{self.stream_id} message {self._commits}.{number}",
                    destination=self.stream_id,
                    ordering_key=f"key {number}",
                    payload=b"note \x1b[31m",
                )
                for number in range(1, messages + 1)
            ],
        )
        self._revision = self._stub.Commit(request, timeout=SECONDS_MAX).revision

    def claim(self) -> tuple[str, str]:
        """Claim one message; return its id and the claim's."""
        request = ClaimOutboxMessagesRequest(hub_project=HUB_PROJECT, destination=self.stream_id, max_count=1)
        (claimed,) = self._stub.ClaimOutboxMessages(request, timeout=SECONDS_MAX).messages
        return claimed.message.outbox_id, claimed.claim_id

    def acknowledge(self, outbox_id: str, claim_id: str) -> None:
        request = AcknowledgeOutboxMessageRequest(
            hub_project=HUB_PROJECT, outbox_id=outbox_id, claim_id=claim_id
        )
        self._stub.AcknowledgeOutboxMessage(request, timeout=SECONDS_MAX)

    def let_one_die(self) -> str:
        """Claim and return a message until it is dead; return its id."""
        outbox_id = ""
        for _ in range(TRIES_MAX):
            outbox_id, claim_id = self.claim()
            request = ReturnOutboxMessageRequest(
                hub_project=HUB_PROJECT, outbox_id=outbox_id, claim_id=claim_id
            )
            self._stub.ReturnOutboxMessage(request, timeout=SECONDS_MAX)
        return outbox_id

    def release(self) -> None:
        self._resource.release(self._credential)


@pytest.fixture
def stream(lease_hub: HubProcess, request: pytest.FixtureRequest) -> Iterator[Stream]:
    """A stream that no other test uses."""
    with grpc.insecure_channel(lease_hub.address) as channel:
        yield Stream(channel, f"stream-of/{request.node.name}")


@pytest.fixture(scope="module")
def tail_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub whose journal begins with two events."""
    process = HubProcess(tmp_path_factory.mktemp("hub") / "hub.db")
    with grpc.insecure_channel(process.address) as channel:
        Stream(channel, "stored").commit(*(b"stored" for _ in range(STORED_EVENTS)))
    yield process
    process.stop()


@contextmanager
def tail_of(hub: HubProcess, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """A tail for programs, ended with the block."""
    arguments = [str(SYNCHUB), "journal", "tail", "--json", *options]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_for(hub.address),
    ) as tail:
        try:
            yield tail
        finally:
            tail.kill()


def position_of(tail: "subprocess.Popen[str]") -> int:
    """The position of the next event that a tail shows."""
    assert tail.stdout is not None
    return int(json.loads(tail.stdout.readline())["position"])


def is_readable(tail: "subprocess.Popen[str]") -> bool:
    """Whether a tail has shown something."""
    assert tail.stdout is not None
    return bool(select.select([tail.stdout], [], [], 0)[0])


def test_streams_are_a_table_for_people_and_json_for_programs(lease_hub: HubProcess, stream: Stream) -> None:
    stream.commit(b"one", b"two")
    prefix = ["journal", "streams", "--prefix", stream.stream_id]
    (told,) = synchub(lease_hub.address, *prefix, "--json").json_lines()
    assert (told["stream_id"], told["revision"], told["is_leased"]) == (stream.stream_id, 2, True)
    table = synchub(lease_hub.address, *prefix).out
    assert table.splitlines()[0].split()[:4] == ["STREAM", "REVISION", "TOKEN", "LEASED"]
    assert table.splitlines()[1].split()[:4] == [stream.stream_id, "2", "1", "yes"]
    stream.release()
    (told,) = synchub(lease_hub.address, *prefix, "--json").json_lines()
    assert told["is_leased"] is False


def test_streams_are_narrowed_by_prefix_and_type_and_bounded(lease_hub: HubProcess, stream: Stream) -> None:
    stream.commit(b"one", event_type="only-here")
    with grpc.insecure_channel(lease_hub.address) as channel:
        for name in ("%", "_", "a"):
            Stream(channel, f"{stream.stream_id}/{name}").commit()

    def ids(*options: str) -> list[object]:
        lines = synchub(lease_hub.address, "journal", "streams", "--json", *options).json_lines()
        return [each["stream_id"] for each in lines]

    assert ids("--type", "only-here") == [stream.stream_id]
    assert ids("--prefix", f"{stream.stream_id}/%") == [f"{stream.stream_id}/%"]
    assert ids("--prefix", f"{stream.stream_id}/", "--limit", "2") == [
        f"{stream.stream_id}/%",
        f"{stream.stream_id}/_",
    ]
    assert synchub(lease_hub.address, "journal", "streams", "--prefix", "nobodys").out == "no streams\n"


def test_events_of_a_stream_steer_no_terminal(lease_hub: HubProcess, stream: Stream) -> None:
    stream.commit(*ODD_PAYLOADS)
    shown = synchub(lease_hub.address, "journal", "read", stream.stream_id).out
    assert shown.splitlines()[0].split()[:2] == ["REVISION", "TIME"]
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown
    assert "(10 bytes) ff 00" in shown
    lines = synchub(lease_hub.address, "journal", "read", stream.stream_id, "--json").json_lines()
    assert [(each["revision"], each.get("text"), each.get("payload")) for each in lines] == [
        (1, "first", None),
        (2, None, "/wAgbm8gdGV4dA=="),
        (3, "é \x1b[31m", None),
    ]
    assert [each["fencing_token"] for each in lines] == [1, 1, 1]


def test_a_range_of_a_stream_is_read_over_its_pages(lease_hub: HubProcess, stream: Stream) -> None:
    for first in range(0, EVENTS_OF_TWO_PAGES, EVENTS_OF_TWO_PAGES // 2):
        stream.commit(*(str(first + n).encode() for n in range(1, EVENTS_OF_TWO_PAGES // 2 + 1)))

    def revisions(*options: str) -> list[object]:
        told = synchub(lease_hub.address, "journal", "read", stream.stream_id, "--json", *options)
        return [each["revision"] for each in told.json_lines()]

    assert revisions("--limit", "0") == list(range(1, EVENTS_OF_TWO_PAGES + 1))
    assert revisions() == list(range(1, 101))
    assert revisions("--limit", "129") == list(range(1, 130))
    assert revisions("--after", "127", "--through", "129") == [128, 129]
    assert revisions("--after", str(EVENTS_OF_TWO_PAGES)) == []


def test_messages_are_a_table_for_people_and_json_for_programs(lease_hub: HubProcess, stream: Stream) -> None:
    stream.commit(b"one", messages=3)
    stream.acknowledge(*stream.claim())
    claimed, _ = stream.claim()
    mine = ["outbox", "list", "--destination", stream.stream_id]

    def states(*options: str) -> list[tuple[object, object]]:
        lines = synchub(lease_hub.address, *mine, "--json", *options).json_lines()
        return [(each["outbox_id"], each["state"]) for each in lines]

    names = [f"{stream.stream_id} message 1.{number}" for number in (1, 2, 3)]
    assert claimed == names[1]
    assert sorted(states()) == [(names[1], "CLAIMED"), (names[2], "PENDING")]
    assert states("--state", "pending") == [(names[2], "PENDING")]
    assert states("--state", "Claimed") == [(names[1], "CLAIMED")]
    assert states("--state", "delivered") == [(names[0], "DELIVERED")]
    assert states("--limit", "1") == [(names[2], "PENDING")]
    table = synchub(lease_hub.address, *mine, COLUMNS="400").out
    assert table.splitlines()[0].split()[:5] == ["MESSAGE", "DESTINATION", "KEY", "STATE", "TRIES"]
    (row,) = [line for line in table.splitlines() if line.startswith(names[1])]
    assert "key 2  CLAIMED  1 " in row
    assert "note \\x1b[31m" in row
    assert "\x1b" not in table
    assert synchub(lease_hub.address, *mine, "--state", "dead").out == "no messages\n"


def test_a_dead_message_is_released_and_tried_anew(lease_hub: HubProcess, stream: Stream) -> None:
    stream.commit(messages=1)
    outbox_id = stream.let_one_die()
    (dead,) = synchub(lease_hub.address, "outbox", "list", "--state", "dead", "--json").json_lines()
    assert (dead["outbox_id"], dead["attempt_count"]) == (outbox_id, TRIES_MAX)
    told = synchub(lease_hub.address, "outbox", "release", outbox_id)
    assert (told.code, told.error) == (0, "")
    assert told.out.startswith(f"{outbox_id} may be tried for {stream.stream_id} from ")
    again, claim_id = stream.claim()
    assert again == outbox_id
    stream.acknowledge(again, claim_id)


def test_a_message_that_is_not_dead_stays_as_it_is(lease_hub: HubProcess, stream: Stream) -> None:
    stream.commit(messages=1)
    outbox_id, claim_id = stream.claim()
    told = synchub(lease_hub.address, "outbox", "release", outbox_id)
    assert told.out == f"{outbox_id} is not dead and stays as it is: CLAIMED, tried 1 times\n"
    stream.acknowledge(outbox_id, claim_id)
    (line,) = synchub(lease_hub.address, "outbox", "release", outbox_id, "--json").json_lines()
    assert (line["state"], line["attempt_count"]) == ("DELIVERED", 1)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["journal", "read"], 2, "Missing argument"),
        (["journal", "read", "nobodys\x1b"], 1, "has the control code point U+001B"),
        (["journal", "read", "nobodys", "--through", "3"], 1, "through_revision"),
        (["journal", "read", "nobodys", "--after", "-1"], 2, "--after"),
        (["journal", "streams", "--hub-project", ""], 2, "no hub project is given"),
        (
            ["journal", "tail", "--from-start", "--after", "1"],
            2,
            "--from-start and --after exclude each other",
        ),
        (["journal", "tail", "--after", "999999"], 1, "999999"),
        (["journal", "tail", "--hub", "127.0.0.1:1"], 1, "no hub can be reached at 127.0.0.1:1"),
        (["outbox", "list", "--state", "odd"], 2, "'odd' is not one of pending, claimed, dead, delivered"),
        (["outbox", "release"], 2, "Missing argument"),
        (["outbox", "release", "nobodys"], 1, "there is no outbox message with outbox id 'nobodys'"),
    ],
)
def test_a_mistake_is_one_sentence_and_never_a_traceback(
    lease_hub: HubProcess, *, arguments: list[str], code: int, sentence: str
) -> None:
    told = synchub(lease_hub.address, *arguments)
    assert told.code == code
    assert sentence in told.error
    assert "Traceback" not in told.error
    assert told.out == ""


def test_a_tail_goes_on_where_it_was_when_the_hub_comes_back(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub.db")
    arguments = [str(SYNCHUB), "journal", "tail", "--from-start", "--type", "told"]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_for(hub.address, PYTHONUNBUFFERED="1"),
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        try:
            with grpc.insecure_channel(hub.address) as channel:
                stream = Stream(channel, "shared")
                stream.commit(b"1 \x1b", event_type="told")
                assert tail.stdout.readline().endswith(" shared 1 told 1 \\x1b\n")
                hub.stop()
                assert "trying again in" in tail.stderr.readline()
                hub = HubProcess(tmp_path / "hub.db", listen=hub.address)
            with grpc.insecure_channel(hub.address) as channel:
                again = Stream(channel, "another")
                again.commit(b"2", event_type="kept quiet")
                again.commit(b"3", event_type="told")
                assert tail.stdout.readline().endswith(" another 2 told 3\n")
            tail.send_signal(signal.SIGINT)
            out, error = tail.communicate(timeout=SECONDS_MAX)
            assert (out, tail.returncode) == ("", 130)
            assert "Traceback" not in error
        finally:
            tail.kill()
            hub.stop()


def test_a_tail_of_a_hub_that_began_anew_says_so_and_goes_on_from_what_still_holds(tmp_path: Path) -> None:
    hub = HubProcess(tmp_path / "hub.db")
    try:
        with tail_of(hub, "--from-start") as tail:
            with grpc.insecure_channel(hub.address) as channel:
                Stream(channel, "lost").commit(b"1", b"2")
            assert [position_of(tail) for _ in range(2)] == [1, 2]
            hub.stop()
            hub = HubProcess(tmp_path / "new.db", listen=hub.address)
            with grpc.insecure_channel(hub.address) as channel:
                Stream(channel, "new").commit(b"1")
            assert position_of(tail) == 1
            assert tail.stderr is not None
            told = next(line for line in tail.stderr if "trying again in" not in line)
    finally:
        hub.stop()
    assert told == "synchub: the hub lost a part of its events; going on after 0, some may come again\n"


@pytest.mark.parametrize(
    ("options", "positions"),
    [(["--from-start"], [1, 2]), (["--after", "0"], [1, 2]), (["--after", "1"], [2])],
)
def test_a_tail_shows_first_what_is_stored_where_it_is_asked_to(
    tail_hub: HubProcess, *, options: list[str], positions: list[int]
) -> None:
    with tail_of(tail_hub, *options) as tail:
        assert [position_of(tail) for _ in positions] == positions


def test_a_tail_shows_only_what_comes_from_now_on(tail_hub: HubProcess) -> None:
    with grpc.insecure_channel(tail_hub.address) as channel, tail_of(tail_hub) as tail:
        stream = Stream(channel, "live")

        # Nobody can see from here when the tail has begun, so it is given something to show until it does.
        def is_shown_after_a_commit() -> bool:
            stream.commit(b"live")
            return is_readable(tail)

        wait_until(is_shown_after_a_commit)
        assert position_of(tail) > STORED_EVENTS
