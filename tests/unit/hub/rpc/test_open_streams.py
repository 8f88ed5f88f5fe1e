"""The streams that are open: bounded for each credential, ended where a credential ends."""

import asyncio
import contextvars
from dataclasses import replace
from typing import cast

import pytest
from google.rpc import status_pb2

from hub.core.errors import HubStopping, LimitReached, Refusal
from hub.core.identity_errors import CredentialMissing, CredentialRevoked
from hub.core.limits import Limits
from hub.rpc.open_streams import OpenStreams
from hub.store.contract import Changes
from tests.unit.hub.rpc.test_identity import BEARERS, Context, Gate, IncomingCall, showing


class Reporter:
    """Nothing here asks for a status."""

    def status_of(self, error: Exception, *, method: str) -> status_pb2.Status:
        raise AssertionError(f"{method} failed: {error}")


class Stream:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.refusals: list[Refusal] = []

    def drain(self) -> None:
        self.end(HubStopping())

    def end(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def cut_if_unread(self, before_seconds: float) -> None:
        """Nothing is written."""


class House:
    """Open streams behind an admission."""

    def __init__(self, limits: Limits | None = None, *, are_required: bool = True) -> None:
        self.gate = Gate(are_required=are_required)
        self.streams = OpenStreams(limits=limits or Limits(), reporter=Reporter())

    def open(self, name: str | None) -> Stream:
        """Open a stream of a token's bearer, None for nobody in particular."""
        stream = Stream()

        def add() -> None:
            context = cast(Context, IncomingCall(() if name is None else showing(name)))
            self.gate.admission.begin(context, "/synchub.v1.SyncService/WatchEvents")
            self.streams.add(stream, kind="WatchEvents")

        contextvars.copy_context().run(add)
        return stream

    def revoke(self, name: str) -> None:
        token = BEARERS[name].token
        self.gate.book.announce(Changes(tokens={token.token_id: replace(token, revoke_nanos=1)}))


def test_the_streams_of_a_token_end_with_it_and_others_go_on() -> None:
    house = House()
    its, others = [house.open("reader") for _ in range(3)], [house.open("admin"), house.open("free")]
    house.streams.end_where_credential_ended()
    assert [each.refusals for each in its + others] == [[]] * 5
    house.revoke("reader")
    house.streams.end_where_credential_ended()
    assert [[type(refusal) for refusal in each.refusals] for each in its] == [[CredentialRevoked]] * 3
    assert [each.refusals for each in others] == [[], []]


def test_a_stream_that_left_before_is_not_ended() -> None:
    house = House()
    gone, there = house.open("reader"), house.open("reader")
    house.streams.remove(gone)
    house.revoke("reader")
    house.streams.end_where_credential_ended()
    assert (gone.refusals, len(there.refusals)) == ([], 1)
    house.streams.remove(there)
    house.streams.end_where_credential_ended()
    assert (dict(house.streams.counts()), len(there.refusals)) == ({"WatchEvents": 0}, 1)


def test_a_token_has_so_many_streams_and_another_one_its_own() -> None:
    house = House(Limits(credential_streams_max=2))
    first, _ = house.open("reader"), house.open("reader")
    with pytest.raises(LimitReached) as caught:
        house.open("reader")
    assert caught.value.metadata() == {"limit": "credential_streams_max", "limitValue": "2"}
    assert house.streams.counts() == {"WatchEvents": 2}
    house.open("admin")
    house.streams.remove(first)
    house.open("reader")
    assert house.streams.counts() == {"WatchEvents": 3}


def test_all_have_so_many_streams_together() -> None:
    house = House(Limits(open_streams_max=2))
    house.open("reader")
    house.open("admin")
    with pytest.raises(LimitReached) as caught:
        house.open("free")
    assert caught.value.limit == "open_streams_max"
    assert house.streams.counts() == {"WatchEvents": 2}


def test_who_is_refused_has_no_stream() -> None:
    house = House()
    for name, fault in ((None, CredentialMissing), ("revoked", CredentialRevoked)):
        with pytest.raises(fault):
            house.open(name)
    assert house.streams.counts() == {}


def test_without_credentials_no_stream_ends_for_one() -> None:
    house = House(Limits(credential_streams_max=1), are_required=False)
    streams = [house.open(None) for _ in range(3)]
    house.streams.end_where_credential_ended()
    assert [each.refusals for each in streams] == [[], [], []]


def test_a_stop_ends_all_and_takes_no_more() -> None:
    house = House()
    stream = house.open("reader")

    async def stop() -> bool:
        draining = asyncio.create_task(house.streams.drain(10.0))
        await asyncio.sleep(0)
        with pytest.raises(HubStopping):
            house.open("reader")
        house.streams.remove(stream)
        return await draining

    assert asyncio.run(stop())
    assert [type(refusal) for refusal in stream.refusals] == [HubStopping]
