"""Two programs share a stream under a lease; one is frozen past its lease, and its late commit is refused.

Run it: ``python docs/examples/shared_stream.py 127.0.0.1:7443`` beside a running ``synchub serve``. It
starts two workers as processes of their own, and freezes the first one with SIGSTOP in the midst of its work.
"""

import signal
import subprocess
import sys

from runtime_agent.core.journal_errors import StaleLease
from runtime_agent.core.lease_errors import LeaseError
from runtime_agent.hub_client.client import HubClient
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_values import NewJournalEvent

STREAM = "garden/diary"
TTL_SECONDS = 1.0


def revision_of(hub: HubClient) -> int:
    """Read the stream to its end, and return where that is."""
    revision = 0
    for event in hub.stream_events(STREAM):
        revision = event.revision
    return revision


def work(hub: HubClient, name: str, *, words: list[str]) -> None:
    """Append one event for each word, when told to by a line of input."""
    with hub.lease(STREAM, holder_id=name, ttl_seconds=TTL_SECONDS, wait_seconds=10) as lease:
        credential = lease.credential  # taken once, where the work begins
        revision = revision_of(hub)
        print(f"{name} has the stream with token {lease.fencing_token}", flush=True)
        for word in words:
            sys.stdin.readline()
            event = f"{STREAM} {revision + 1} {name}"
            try:
                committed = hub.commit(
                    event,  # the message id: the same commit happens once, however often it is sent
                    STREAM,
                    lease=credential,
                    expected_revision=revision,
                    events=[NewJournalEvent(event, word)],
                )
            except StaleLease as stale:
                print(f"{name} commits {word!r}: refused, {stale.cause.name}", flush=True)
                return
            revision = committed.revision
            print(f"{name} commits {word!r}", flush=True)


class Worker:
    """This program once more, as one of the workers."""

    def __init__(self, address: str, name: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, address, name, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, number: signal.Signals) -> None:
        """Freeze it, or let it run on."""
        self._process.send_signal(number)

    def say_next(self) -> None:
        """Print what it says next."""
        assert self._process.stdout is not None
        print(self._process.stdout.readline(), end="", flush=True)

    def go_on(self) -> None:
        """Let it append its next word."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Wait until it has ended."""
        self._process.communicate(timeout=10)


def watch_two(hub: HubClient, address: str) -> None:
    """Let two workers take turns, one of which freezes, and read what they left behind."""
    before = revision_of(hub)
    anna = Worker(address, "anna", "sown", "fenced")
    anna.say_next()
    anna.go_on()
    anna.say_next()
    anna.send(signal.SIGSTOP)
    print("anna is frozen, with her next commit decided and not sent")
    bert = Worker(address, "bert", "watered", "harvested")
    bert.say_next()  # as soon as anna's lease has expired
    bert.go_on()
    bert.say_next()
    anna.send(signal.SIGCONT)
    anna.go_on()
    anna.say_next()
    bert.go_on()
    bert.say_next()
    anna.end()
    bert.end()
    words = [event.event_type for event in hub.stream_events(STREAM, after_revision=before)]
    print(f"the stream has: {', '.join(words)}")


def main() -> None:
    """Be one worker, or watch two."""
    address, *worker = sys.argv[1:]
    with HubClient.connect(address, hub_project="home") as hub:
        try:
            if worker:
                work(hub, worker[0], words=worker[1:])
            else:
                watch_two(hub, address)
        except (LeaseError, HubCallError) as error:
            sys.exit(error.sentence)


if __name__ == "__main__":
    main()
