"""Programs that share streams under leases, and dispatchers of their outbox, on a hub that may die any time.

What they do is recorded: each commit with what is known of it, each message that was given.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import grpc

from synchub.channel import Refusal, refusal_from_error
from synchub.v1 import journal_service_pb2 as messages
from synchub.v1 import lease_service_pb2 as leases
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.robustness.journal_checker import (
    Acknowledgement,
    Attempt,
    Delivery,
    History,
    Outcome,
    Stored,
    folded,
    projection_of,
)
from tests.robustness.programs import HUB_PROJECT, Program

Answer = TypeVar("Answer")

CALL_SECONDS_MAX: Final = 10.0
SHORT_SECONDS: Final = (0.001, 0.01)
"""Deadlines of calls whose answer is often too late."""
TTL_SECONDS: Final = (0.2, 0.6)
VISIBLE_SECONDS: Final = (0.2, 0.6)
RETRY_SECONDS: Final = 0.02
DESTINATION: Final = "mail"
KEYS: Final = ("", "", "a", "b")
CHANNEL_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
    ("grpc.use_local_subchannel_pool", 1),
)
LIMITS: Final = {
    "SYNCHUB_LIMITS__LEASE_TTL_SECONDS_MIN": "0.1",
    "SYNCHUB_LIMITS__OUTBOX_TRIES_MAX": "4",
}
"""Leases may be short and messages die soon, so that both are seen in a short test."""


class JournalHub:
    """A hub process over one store, at one address in all its lives."""

    def __init__(self, folder: Path) -> None:
        self._database = folder / "hub.db"
        self._log = folder / "hub.log"
        self.address = "127.0.0.1:0"
        self._program = self._with_address()

    def start(self) -> None:
        """Start it; from the second life on it has the address of the first."""
        address = self._program.start().split()[2]
        if self.address != address:
            self.address = address
            self._program.stop()
            self._program = self._with_address()
            self._program.start()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._program.kill()

    def stop(self) -> None:
        """End it with SIGTERM."""
        self._program.stop()

    def _with_address(self) -> Program:
        arguments = ["hub", "serve", "--db", str(self._database), "--listen", self.address, "--http", "none"]
        return Program(arguments, self._log, environment={**os.environ, **LIMITS})


class Caller(threading.Thread):
    """Somebody who uses the hub until told to end, over a connection of its own."""

    def __init__(self, name: str, address: str, rng: random.Random) -> None:
        super().__init__(name=name, daemon=True)
        self._channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        self.journal = JournalServiceStub(self._channel)
        self.leases = LeaseServiceStub(self._channel)
        self.rng = rng
        self.history = History()
        self.counts: Counter[str] = Counter()
        self.is_ending = threading.Event()
        self.has_ended_well = False

    def run(self) -> None:
        with self._channel:
            while not self.is_ending.is_set():
                self.act()
        self.has_ended_well = True

    def act(self) -> None:
        """Do one thing; called again and again."""
        raise NotImplementedError

    def ask(self, call: Callable[[float], Answer], *, seconds: float = CALL_SECONDS_MAX) -> Answer | Refusal:
        """Return the answer of a call, or what it ended with, also where no hub answered it."""
        try:
            return call(seconds)
        except grpc.RpcError as error:
            return refusal_from_error(error)

    def ask_until_answered(self, call: Callable[[float], Answer]) -> Answer | Refusal:
        """Repeat a call until a hub answers or refuses it."""
        # Now and then the answer is not waited for: it is lost to the caller, the call may be done.
        is_hasty = self.rng.random() < 0.15
        answer = self.ask(call, seconds=self.rng.uniform(*SHORT_SECONDS) if is_hasty else CALL_SECONDS_MAX)
        while isinstance(answer, Refusal) and answer.is_connection_loss:
            self.counts["repeated"] += 1
            time.sleep(RETRY_SECONDS)
            answer = self.ask(call)
        return answer


class Worker(Caller):
    """Takes turns at the streams: a lease, some commits, and on to another."""

    def __init__(self, name: str, address: str, rng: random.Random, *, streams: tuple[str, ...]) -> None:
        super().__init__(name, address, rng)
        self._streams = streams
        self._tenure_count = 0
        self._commit_count = 0

    def act(self) -> None:
        stream_id = self.rng.choice(self._streams)
        credential = self._lease(stream_id)
        if credential is None:
            return
        for _ in range(self.rng.randint(1, 5)):
            if not self._commit(stream_id, credential):
                return
        if self.rng.random() < 0.6:
            # Else the next one has to wait, or to take over.
            request = leases.ReleaseLeaseRequest(hub_project=HUB_PROJECT, credential=credential)
            self.ask(lambda seconds: self.leases.ReleaseLease(request, timeout=seconds))

    def _lease(self, stream_id: str) -> leases.LeaseCredential | None:
        """Return the credential of a new tenure, None where there is none to be had now."""
        self._tenure_count += 1
        nonce = f"{self.name}-{self._tenure_count}-{self.rng.getrandbits(128):032x}"
        takeover = leases.TakeoverLeaseRequest(
            hub_project=HUB_PROJECT, resource=stream_id, runtime_id=self.name, holder_id="worker", nonce=nonce
        )
        takeover.ttl.FromNanoseconds(round(self.rng.uniform(*TTL_SECONDS) * 1e9))
        taken = self.ask(lambda seconds: self.leases.TakeoverLease(takeover, timeout=seconds))
        if isinstance(taken, leases.TakeoverLeaseResponse):
            self.counts["taken over"] += 1
            return taken.credential
        acquire = leases.AcquireLeaseRequest(
            hub_project=HUB_PROJECT,
            resource=stream_id,
            runtime_id=self.name,
            holder_id="worker",
            nonce=nonce,
            ttl=takeover.ttl,
        )
        acquire.wait_timeout.FromMilliseconds(300)
        acquired = self.ask(lambda seconds: self.leases.AcquireLease(acquire, timeout=seconds))
        return acquired.credential if isinstance(acquired, leases.AcquireLeaseResponse) else None

    def _commit(self, stream_id: str, credential: leases.LeaseCredential) -> bool:
        """Commit once; return whether to go on under this lease."""
        request = self._next_request(stream_id, credential)
        if request is None:
            return False
        if self.rng.random() < 0.05:
            time.sleep(TTL_SECONDS[1])  # The program was paused, and does not know it.
        attempt = Attempt(request)
        self.history.attempts.append(attempt)

        def call(seconds: float) -> messages.CommitResponse:
            return self.journal.Commit(request, timeout=seconds)

        is_given_up = self.rng.random() < 0.1
        if is_given_up:
            answer = self.ask(call, seconds=self.rng.uniform(*SHORT_SECONDS))
        else:
            answer = self.ask_until_answered(call)
        if isinstance(answer, messages.CommitResponse):
            attempt.outcome, attempt.result = Outcome.COMMITTED, answer
            self.counts["recovered" if answer.recovered else "committed"] += 1
            return True
        if answer.is_connection_loss:
            self.counts["unknown"] += 1
            return False
        attempt.outcome = Outcome.REFUSED
        self.counts[answer.metadata.get("cause", answer.reason)] += 1
        return False

    def _next_request(
        self, stream_id: str, credential: leases.LeaseCredential
    ) -> messages.CommitRequest | None:
        """Return the next commit to a stream as it is now; None where it cannot be read under the lease."""
        known = self._read(stream_id, credential)
        if known is None:
            return None
        revision, value = known
        self._commit_count += 1
        name = f"{self.name}-{self._commit_count}"
        events = [
            messages.NewJournalEvent(
                event_id=f"{name}-e{n}",
                event_type="worked",
                payload=self.rng.randbytes(self.rng.randint(0, 300)),
            )
            for n in range(self.rng.choice((0, 1, 1, 2, 5)))
        ]
        # Each is about an event of its own, which tells its place among those of its key.
        outbox_messages = [
            messages.NewOutboxMessage(
                outbox_id=f"{event.event_id}-o",
                event_id=event.event_id,
                destination=DESTINATION,
                ordering_key=self.rng.choice(KEYS),
                payload=event.payload,
            )
            for event in events[:3]
        ]
        is_careless = self.rng.random() < 0.05
        request = messages.CommitRequest(
            hub_project=HUB_PROJECT,
            message_id=name,
            stream_id=stream_id,
            credential=credential,
            expected_revision=revision + is_careless,
            events=events,
            outbox_messages=outbox_messages or [_without_event(name)],
            reply=name.encode(),
        )
        request.projections.add(projection_id=projection_of(stream_id), value=folded(value, events))
        return request

    def _read(self, stream_id: str, credential: leases.LeaseCredential) -> tuple[int, bytes] | None:
        """Return where a stream is, from its projection, which no commit leaves behind."""
        request = messages.GetProjectionRequest(
            hub_project=HUB_PROJECT, projection_id=projection_of(stream_id)
        )
        answer = self.ask(lambda seconds: self.journal.GetProjection(request, timeout=seconds))
        if isinstance(answer, Refusal):
            return (0, b"") if answer.reason == "NOT_FOUND" else None
        projection = answer.projection
        # A fenced read: from here on nobody else has written, or the commit is refused.
        fenced = messages.ListStreamEventsRequest(
            hub_project=HUB_PROJECT,
            stream_id=stream_id,
            credential=credential,
            after_revision=projection.revision,
        )
        page = self.ask(lambda seconds: self.journal.ListStreamEvents(fenced, timeout=seconds))
        if isinstance(page, Refusal):
            self.counts["read refused"] += page.reason == "STALE_LEASE"
            return None
        return projection.revision + len(page.events), folded(projection.value, page.events)


def _without_event(name: str) -> messages.NewOutboxMessage:
    """Return a message of a commit that has no events."""
    return messages.NewOutboxMessage(outbox_id=f"{name}-o", destination=DESTINATION, payload=name.encode())


class Dispatcher(Caller):
    """Claims messages and acknowledges most of them; some it gives back, some it forgets."""

    def act(self) -> None:
        request = messages.ClaimOutboxMessagesRequest(
            hub_project=HUB_PROJECT, destination=DESTINATION, max_count=self.rng.randint(1, 10)
        )
        request.visibility_timeout.FromNanoseconds(round(self.rng.uniform(*VISIBLE_SECONDS) * 1e9))
        ask_seconds = time.monotonic()
        answer = self.ask(lambda seconds: self.journal.ClaimOutboxMessages(request, timeout=seconds))
        told_seconds = time.monotonic()
        if isinstance(answer, Refusal) or not answer.messages:
            time.sleep(RETRY_SECONDS)
            return
        for claimed in answer.messages:
            message = claimed.message
            self.history.deliveries.append(
                Delivery(message.outbox_id, message.payload, ask_seconds, told_seconds)
            )
            self._answer(claimed)

    def _answer(self, claimed: messages.ClaimedOutboxMessage) -> None:
        """Acknowledge a message, give it back, forget it, or be too late."""
        chance = self.rng.random()
        if chance < 0.1:
            self._give_back(claimed)
            return
        if chance < 0.15:
            self.counts["forgotten"] += 1
            return
        if chance < 0.17:
            time.sleep(VISIBLE_SECONDS[1])  # Paused past its claim.
        self.acknowledge(claimed)

    def _give_back(self, claimed: messages.ClaimedOutboxMessage) -> None:
        request = messages.ReturnOutboxMessageRequest(
            hub_project=HUB_PROJECT, outbox_id=claimed.message.outbox_id, claim_id=claimed.claim_id
        )
        request.delay.FromMilliseconds(self.rng.randint(0, 50))
        self.ask(lambda seconds: self.journal.ReturnOutboxMessage(request, timeout=seconds))
        self.counts["given back"] += 1

    def acknowledge(self, claimed: messages.ClaimedOutboxMessage) -> None:
        """Acknowledge until answered, and record what was done by it."""
        request = messages.AcknowledgeOutboxMessageRequest(
            hub_project=HUB_PROJECT, outbox_id=claimed.message.outbox_id, claim_id=claimed.claim_id
        )
        answer = self.ask_until_answered(
            lambda seconds: self.journal.AcknowledgeOutboxMessage(request, timeout=seconds)
        )
        assert not isinstance(answer, Refusal), answer
        outcome = messages.OutboxOutcome.Name(answer.outcome).removeprefix("OUTBOX_OUTCOME_")
        self.counts[outcome] += 1
        if answer.outcome == messages.OUTBOX_OUTCOME_DONE:
            outbox_id = claimed.message.outbox_id
            self.history.acknowledgements.append(Acknowledgement(outbox_id, time.monotonic()))


class LastDispatcher(Dispatcher):
    """Delivers all that is left, the dead ones released, and ends by itself."""

    def act(self) -> None:
        listed = self.journal.ListOutboxMessages(
            messages.ListOutboxMessagesRequest(hub_project=HUB_PROJECT, page_size=1000),
            timeout=CALL_SECONDS_MAX,
        )
        if not listed.messages:
            self.is_ending.set()
        for message in listed.messages:
            if message.state == messages.OUTBOX_MESSAGE_STATE_DEAD:
                request = messages.ReleaseOutboxMessageRequest(
                    hub_project=HUB_PROJECT, outbox_id=message.outbox_id
                )
                self.journal.ReleaseOutboxMessage(request, timeout=CALL_SECONDS_MAX)
                self.counts["dead"] += 1
        super().act()

    def _answer(self, claimed: messages.ClaimedOutboxMessage) -> None:
        self.acknowledge(claimed)


def stored_in(address: str) -> Stored:
    """Read all that a hub has."""
    with grpc.insecure_channel(address) as channel:
        stub = JournalServiceStub(channel)
        streams = stub.ListStreams(messages.ListStreamsRequest(hub_project=HUB_PROJECT)).streams
        projections: dict[str, messages.Projection] = {}
        for stream in streams:
            name = projection_of(stream.stream_id)
            request = messages.GetProjectionRequest(hub_project=HUB_PROJECT, projection_id=name)
            projections[name] = stub.GetProjection(request).projection
        return Stored(
            events=_all_events(stub),
            revisions={stream.stream_id: stream.revision for stream in streams},
            outbox_messages=[
                message
                for state in (
                    messages.OUTBOX_MESSAGE_STATE_UNSPECIFIED,
                    messages.OUTBOX_MESSAGE_STATE_DELIVERED,
                )
                for message in _all_messages(stub, state)
            ],
            projections=projections,
        )


def _all_events(stub: JournalServiceStub) -> list[messages.JournalEvent]:
    request = messages.ListJournalRequest(hub_project=HUB_PROJECT)
    events: list[messages.JournalEvent] = []
    while True:
        page = stub.ListJournal(request)
        events.extend(page.events)
        if page.done:
            return events
        request.after_position, request.hub_generation = page.next_position, page.hub_generation


def _all_messages(
    stub: JournalServiceStub, state: "messages.OutboxMessageState.ValueType"
) -> list[messages.OutboxMessage]:
    request = messages.ListOutboxMessagesRequest(hub_project=HUB_PROJECT, state=state, page_size=1000)
    found: list[messages.OutboxMessage] = []
    while True:
        page = stub.ListOutboxMessages(request)
        found.extend(page.messages)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token
