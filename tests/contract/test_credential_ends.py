"""A token that is revoked or expires ends its streams, and nothing of it is stored after."""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast
from uuid import uuid4

import apsw
import grpc
import pytest
from google.protobuf.message import Message

from hub.core.limits import Limits
from synchub.channel import Refusal, refusal_from_error, refusal_from_status
from synchub.contract import NANOS_PER_SECOND
from synchub.v1.hub_service_pb2 import (
    ROLE_OPERATOR,
    ROLE_READER,
    ROLE_RUNTIME,
    CreateTokenRequest,
    GetHubInfoRequest,
    ListTokensRequest,
    RevokeTokenRequest,
    Token,
)
from synchub.v1.journal_service_pb2 import ListStreamsRequest, WatchJournalRequest
from synchub.v1.lease_service_pb2 import (
    LeaseCredential,
    LeaseRenewal,
    RenewLeasesRequest,
    WatchLeasesRequest,
)
from synchub.v1.presence_service_pb2 import HeartbeatRequest, WatchRuntimesRequest
from synchub.v1.sync_service_pb2 import (
    BindProjectRequest,
    GetRunRequest,
    PushEventsRequest,
    WatchAlertsRequest,
    WatchEventsRequest,
)
from tests.contract.conversation import STREAM_SECONDS_MAX, Conversation, refusal_of
from tests.contract.hub_time import HandClock, hub_in_hand
from tests.contract.journaling import commit, commit_request, leased, new_event
from tests.contract.lease_calls import LeaseCalls
from tests.contract.leasing import nonce, seconds
from tests.contract.pushing import events
from tests.contract.secured import SecuredHub, Stubs, make_tokens

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

UNAUTHENTICATED: Final = grpc.StatusCode.UNAUTHENTICATED
WALL_NANOS: Final = 1_800_000_000_000_000_000
TTL_SECONDS: Final = 100.0
ENDS_SECONDS_MAX: Final = 5.0
"""Within this time a stream has ended whose token does not count any more."""
LOOK_SECONDS: Final = 0.01


class Scene:
    """A hub whose clocks are in hand, and tokens that end in a test."""

    def __init__(self, hub: SecuredHub, clock: HandClock, wall: HandClock) -> None:
        self.hub = hub
        self.clock = clock
        self.wall = wall
        self.admin = hub.stubs("one/admin")

    def bearer(self, *, is_reader: bool = False) -> tuple[Token, Stubs]:
        """A token of hub project one that ends after ``TTL_SECONDS``, and what its bearer sees."""
        request = CreateTokenRequest(
            display_name="ends",
            role=ROLE_READER if is_reader else ROLE_RUNTIME,
            project_id_prefixes=() if is_reader else ["one-"],
            ttl=seconds(TTL_SECONDS),
        )
        made = self.admin.hub.CreateToken(request)
        return made.token, self.hub.stubs_showing(made.bearer_token)

    def end(self, token: Token, how: str) -> str:
        """Let a token end, and return the reason that its calls are refused with then."""
        if how == "revoked":
            self.admin.hub.RevokeToken(RevokeTokenRequest(token_id=token.token_id))
            return "CREDENTIAL_REVOKED"
        if how == "hub time":
            clock, now = self.clock, self.admin.hub.GetHubInfo(GetHubInfoRequest()).hub_time.ToNanoseconds()
        else:
            clock, now = self.wall, self.wall()
        clock.pass_time((token.expire_time.ToNanoseconds() - now) / NANOS_PER_SECOND)
        return "CREDENTIAL_EXPIRED"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("ends")
    with scene_in(folder, Limits(credential_check_seconds=0.02)) as scene:
        yield scene


@contextmanager
def scene_in(folder: Path, limits: Limits) -> Iterator[Scene]:
    bearers = make_tokens(folder / "hub.db", limits=limits, wall_nanos=WALL_NANOS)
    clock, wall = HandClock(), HandClock(WALL_NANOS)
    with ExitStack() as stack:
        hub = stack.enter_context(hub_in_hand(folder, clock, limits=limits, wall_nanos=wall))
        secured = stack.enter_context(SecuredHub(hub, bearers, folder / "hub.db"))
        yield Scene(secured, clock, wall)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a stream ended: what was said in band, where it has a place for it, and the status."""

    in_band: Refusal | None
    status: Refusal


class Stream:
    """A stream that is open and was answered once."""

    def __init__(self, call: Iterator[Message], *, half_close: Callable[[], None] | None = None) -> None:
        self._call = call
        self._half_close = half_close
        next(call)

    def is_open(self) -> bool:
        return cast("grpc.RpcContext", self._call).is_active()

    def ended(self) -> Ended:
        """Read until it has ended, which must be by a refusal."""
        in_band = None
        try:
            for response in self._call:
                if self._half_close is not None and response.HasField("error"):
                    in_band = refusal_from_status(response.error)  # type: ignore[attr-defined]  # of streams
                    self._half_close()
        except grpc.RpcError as error:
            return Ended(in_band, refusal_from_error(error))
        raise AssertionError("the stream ended well")


@contextmanager
def talking(
    method: "grpc.StreamStreamMultiCallable[Request, Response]", request: Request
) -> Iterator[Stream]:
    with Conversation(method) as conversation:
        conversation.send(request)
        yield Stream(cast("Iterator[Message]", conversation.call), half_close=conversation.half_close)


@contextmanager
def watching(
    method: "grpc.UnaryStreamMultiCallable[Request, Response]", request: Request
) -> Iterator[Stream]:
    call = method(request, timeout=STREAM_SECONDS_MAX)
    yield Stream(cast("Iterator[Message]", call))
    call.cancel()


def pushed(run_id: str, sequence: int = 1) -> PushEventsRequest:
    return PushEventsRequest(
        project_id="one-p", run_id=run_id, runtime_id="r", events=events(sequence, sequence)
    )


def unheld() -> LeaseCredential:
    return LeaseCredential(resource="x", runtime_id="r", holder_id="h", fencing_token=1, nonce=nonce("n"))


STREAMS: Final[dict[str, Callable[[Stubs], AbstractContextManager[Stream]]]] = {
    "PushEvents": lambda stubs: talking(stubs.sync.PushEvents, pushed("opened")),
    "Heartbeat": lambda stubs: talking(
        stubs.presence.Heartbeat, HeartbeatRequest(runtime_id=uuid4().hex, instance_id="i")
    ),
    "RenewLeases": lambda stubs: talking(
        stubs.lease.RenewLeases, RenewLeasesRequest(renewals=[LeaseRenewal(credential=unheld())])
    ),
    "WatchEvents": lambda stubs: watching(
        stubs.sync.WatchEvents, WatchEventsRequest(project_id="one-p", from_now=True)
    ),
    "WatchAlerts": lambda stubs: watching(stubs.sync.WatchAlerts, WatchAlertsRequest()),
    "WatchRuntimes": lambda stubs: watching(stubs.presence.WatchRuntimes, WatchRuntimesRequest()),
    "WatchLeases": lambda stubs: watching(stubs.lease.WatchLeases, WatchLeasesRequest()),
    "WatchJournal": lambda stubs: watching(stubs.journal.WatchJournal, WatchJournalRequest()),
}
"""How each stream is opened that stays open; what is said in band, only bidirectional ones have."""
IN_BAND: Final = ("PushEvents", "Heartbeat", "RenewLeases")


@pytest.mark.parametrize("how", ["revoked", "hub time", "wall clock"])
@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_ends_with_its_token_and_others_go_on(scene: Scene, kind: str, how: str) -> None:
    is_reader = kind == "WatchAlerts"
    token, stubs = scene.bearer(is_reader=is_reader)
    neighbour = scene.hub.stubs("one/reader" if is_reader else "one/free")
    with (
        STREAMS[kind](stubs) as stream,
        STREAMS[kind](stubs) as second,
        talking(scene.hub.stubs("one/free").sync.PushEvents, pushed(f"{kind} {how}")) as other,
        STREAMS[kind](neighbour),
    ):
        begin = time.monotonic()
        reason = scene.end(token, how)
        for each in (stream, second):
            ended = each.ended()
            assert (ended.status.code, ended.status.reason) == (UNAUTHENTICATED, reason)
            assert (ended.in_band is not None) is (kind in IN_BAND)
            assert ended.in_band is None or ended.in_band.reason == reason
        assert time.monotonic() - begin < ENDS_SECONDS_MAX
        assert other.is_open()
    refusal = refusal_of(lambda: stubs.hub.GetHubInfo(GetHubInfoRequest()))
    assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, reason)


def test_with_the_bounds_as_they_are_a_stream_ends_within_five_seconds(tmp_path: Path) -> None:
    with scene_in(tmp_path, Limits()) as scene:
        for how in ("hub time", "revoked"):
            token, stubs = scene.bearer()
            with talking(stubs.sync.PushEvents, pushed(how)) as stream:
                begin = time.monotonic()
                scene.end(token, how)
                stream.ended()
                assert time.monotonic() - begin < ENDS_SECONDS_MAX


def test_a_client_that_never_closes_its_side_is_ended_all_the_same(tmp_path: Path) -> None:
    with scene_in(tmp_path, Limits()) as scene:
        token, stubs = scene.bearer()
        with Conversation(stubs.sync.PushEvents) as stream:
            assert stream.ask(pushed("left open")).accepted_count == 1
            begin = time.monotonic()
            reason = scene.end(token, "revoked")
            stream.send(pushed("left open", 2))
            assert stream.refusal().reason == reason
            assert time.monotonic() - begin < ENDS_SECONDS_MAX
        assert cursor_of(scene, "left open") == 1


def test_a_revocation_ends_streams_by_itself_and_an_expiry_when_it_is_looked_for(tmp_path: Path) -> None:
    with scene_in(tmp_path, Limits(credential_check_seconds=3_600)) as scene:
        (revoked, its), (expired, others) = scene.bearer(), scene.bearer()
        with (
            watching(its.lease.WatchLeases, WatchLeasesRequest()) as first,
            watching(others.lease.WatchLeases, WatchLeasesRequest()) as second,
        ):
            scene.end(expired, "hub time")
            scene.end(revoked, "revoked")
            assert first.ended().status.reason == "CREDENTIAL_REVOKED"
            # A change of any token is a look at all.
            assert second.ended().status.reason == "CREDENTIAL_EXPIRED"


@pytest.mark.parametrize("how", ["revoked", "hub time", "wall clock"])
def test_what_is_pushed_after_the_end_is_not_stored(scene: Scene, how: str) -> None:
    token, stubs = scene.bearer()
    run_id = f"pushed after {how}"
    with Conversation(stubs.sync.PushEvents) as stream:
        assert stream.ask(pushed(run_id)).accepted_count == 1
        scene.end(token, how)
        for sequence in range(2, 50):
            stream.send(pushed(run_id, sequence))
        stream.half_close()
        answers = stream.read_all()
    assert [answer for answer in answers if answer.accepted_count] == []
    assert cursor_of(scene, run_id) == 1


def cursor_of(scene: Scene, run_id: str) -> int:
    request = GetRunRequest(project_id="one-p", run_id=run_id)
    return scene.hub.stubs("one/reader").sync.GetRun(request).run.cursor


# --- what waits in the writer's queue ---


@contextmanager
def busy_writer(scene: Scene) -> Iterator[int]:
    """Keep the writer from beginning a group; what is called within the block waits in its queue.

    Gives how many commands wait in the control lane already.
    """
    connection = apsw.Connection(str(scene.hub.database))
    bound: list[Future[object]] = []

    def does_one_wait() -> bool:
        project_id = f"one-{uuid4().hex}"
        bind = scene.hub.stubs("one/operator").sync.BindProject
        bound.append(
            executor.submit(bind, BindProjectRequest(project_id=project_id), timeout=STREAM_SECONDS_MAX)
        )
        return queued(scene, "CONTROL") > 0

    with ThreadPoolExecutor() as executor:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # The writer has taken the first one and waits for the store: another one stays in the queue.
            until(does_one_wait)
            until(lambda: queued(scene, "CONTROL") + 1 >= len(bound))
            yield queued(scene, "CONTROL")
        finally:
            connection.execute("ROLLBACK")
            connection.close()
        for each in bound:
            each.result()


def queued(scene: Scene, lane: str) -> int:
    """How many commands wait for the writer in a lane."""
    with urllib.request.urlopen(f"http://{scene.hub.hub.http_address}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    (value,) = re.findall(rf'^synchub_writer_queue_commands{{lane="{lane}"}} ([0-9.]+)$', text, re.M)
    return round(float(value))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ENDS_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(LOOK_SECONDS)


@pytest.mark.parametrize("how", ["revoked", "hub time", "wall clock"])
def test_a_batch_that_waits_in_the_writer_when_its_token_ends_is_not_stored(scene: Scene, how: str) -> None:
    token, stubs = scene.bearer()
    run_id = f"queued {how}"
    with Conversation(stubs.sync.PushEvents) as stream, ThreadPoolExecutor(1) as executor:
        assert stream.ask(pushed(run_id)).accepted_count == 1
        with busy_writer(scene) as waiting_count:
            stream.send(pushed(run_id, 2))
            until(lambda: queued(scene, "INGEST") == 1)
            ending = executor.submit(scene.end, token, how)
            until(lambda: ending.done() or queued(scene, "CONTROL") > waiting_count)
        reason = ending.result()
        stream.half_close()
        answers = stream.read_all()
    assert [refusal_from_status(answer.error).reason for answer in answers] == [reason]
    assert cursor_of(scene, run_id) == 1


@pytest.mark.parametrize("how", ["revoked", "hub time", "wall clock"])
def test_a_commit_that_waits_in_the_writer_when_its_token_ends_is_not_stored(scene: Scene, how: str) -> None:
    token, stubs = scene.bearer()
    name = f"commit {how}"
    credential = leased(stubs.lease, "", name)
    request = commit_request("", credential, message_id=name, stream_id=name, events=[new_event(name)])
    with ThreadPoolExecutor(2) as executor:
        with busy_writer(scene) as waiting_count:
            committing = executor.submit(refusal_of, lambda: commit(stubs.journal, request))
            until(lambda: queued(scene, "JOURNAL") == 1)
            ending = executor.submit(scene.end, token, how)
            until(lambda: ending.done() or queued(scene, "CONTROL") > waiting_count)
        assert committing.result().reason == ending.result()
    streams = scene.hub.stubs("one/reader").journal.ListStreams(ListStreamsRequest(stream_id_prefix=name))
    assert not streams.streams


def test_what_an_operator_asked_of_tokens_behind_its_own_revocation_is_not_done(scene: Scene) -> None:
    victim, _ = scene.bearer()
    before = live_tokens(scene)
    asked = CreateTokenRequest(display_name="operator", role=ROLE_OPERATOR)
    made = scene.admin.hub.CreateToken(asked)
    operator = scene.hub.stubs_showing(made.bearer_token)
    with ThreadPoolExecutor(3) as executor:
        with busy_writer(scene) as waiting_count:
            ending = executor.submit(scene.end, made.token, "revoked")
            until(lambda: queued(scene, "CONTROL") == waiting_count + 1)
            calls = [
                executor.submit(refusal_of, lambda: operator.hub.CreateToken(asked)),
                executor.submit(
                    refusal_of,
                    lambda: operator.hub.RevokeToken(RevokeTokenRequest(token_id=victim.token_id)),
                ),
            ]
            until(lambda: queued(scene, "CONTROL") == waiting_count + 3)
        assert {call.result().reason for call in calls} == {ending.result()}
    assert live_tokens(scene) == before


def live_tokens(scene: Scene) -> list[Token]:
    """The tokens of hub project one that were not revoked."""
    listed = scene.admin.hub.ListTokens(ListTokensRequest(page_size=1_000)).tokens
    return [token for token in listed if not token.HasField("revoke_time")]


# --- leases ---


@pytest.mark.parametrize("how", ["revoked", "hub time"])
def test_who_waits_for_a_lease_waits_no_more_when_the_token_ends(scene: Scene, how: str) -> None:
    token, stubs = scene.bearer()
    held = LeaseCalls(scene.hub.stubs("one/free").lease, "one", f"r {how}")
    waits = LeaseCalls(stubs.lease, "one", f"r {how}")
    granted = held.acquire("a", "a1", ttl=3_600)
    waiting = waits.waiting("b", "b1", wait=600)
    behind = held.waiting("c", "c1", wait=600)
    reason = scene.end(token, how)
    refusal = refusal_of(waiting.result)
    assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, reason)
    held.until_waiters(1)
    held.release(granted.credential)
    assert behind.result().lease.holder_id == "c"


# --- time ---


def test_a_token_ends_by_the_later_of_hub_time_and_the_wall_clock(tmp_path: Path) -> None:
    with scene_in(tmp_path, Limits()) as scene:
        _, stubs = scene.bearer()

        def is_let_in() -> bool:
            try:
                return bool(stubs.hub.GetHubInfo(GetHubInfoRequest()).version)
            except grpc.RpcError as error:
                return refusal_from_error(error).reason != "CREDENTIAL_EXPIRED"

        scene.wall.pass_time(TTL_SECONDS - 1)
        scene.clock.pass_time(TTL_SECONDS - 1)
        assert is_let_in()
        scene.wall.pass_time(1)
        assert not is_let_in()
        scene.wall.pass_time(-TTL_SECONDS)
        assert is_let_in()
        scene.clock.pass_time(1)
        assert not is_let_in()
        # However far the wall clock is put back.
        scene.wall.pass_time(-1e9)
        assert not is_let_in()


def test_a_token_made_while_the_wall_clock_is_ahead_lasts_as_long_as_it_says(tmp_path: Path) -> None:
    with scene_in(tmp_path, Limits()) as scene:
        scene.wall.pass_time(10 * TTL_SECONDS)
        _, stubs = scene.bearer()
        scene.wall.pass_time(TTL_SECONDS - 1)
        assert stubs.hub.GetHubInfo(GetHubInfoRequest()).version
        scene.wall.pass_time(1)
        refusal = refusal_of(lambda: stubs.hub.GetHubInfo(GetHubInfoRequest()))
        assert refusal.reason == "CREDENTIAL_EXPIRED"
