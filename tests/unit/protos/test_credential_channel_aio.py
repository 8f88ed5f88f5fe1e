"""The channel for event loops that shows credentials, over real TLS, while the files behind it change."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme

from synchub.channel import dial_aio, parse_addresses
from synchub.credential_channel_aio import CredentialChannelAio
from synchub.credential_connections import OLD_CONNECTIONS_MAX
from synchub.credentials import LOOK_SECONDS, Credentials, CredentialsError, CredentialSource
from tests.unit.protos.showing_server import (
    ASK,
    COUNT,
    HOLD,
    LIST,
    ClientFiles,
    ShowingServer,
    server_credentials,
    serving,
)

CALL_SECONDS = 10.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path) -> ClientFiles:
    return ClientFiles(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def plain_server() -> Iterator[ShowingServer]:
    with serving() as server:
        yield server


@pytest.fixture
def tls_server(authority: trustme.CA) -> Iterator[ShowingServer]:
    with serving(server_credentials(authority, "127.0.0.1", clients=authority)) as server:
        yield server


@pytest.fixture
def source(files: ClientFiles, authority: trustme.CA, clock: Clock) -> CredentialSource:
    files.put_token("old")
    files.put_ca(authority)
    files.put_certificate(authority, "old")
    credentials = Credentials(
        token_file=files.token, ca_file=files.ca, certificate_file=files.certificate, key_file=files.key
    )
    return CredentialSource(credentials, clock=clock)


async def ask(channel: grpc.aio.Channel) -> bytes:
    return await channel.unary_unary(ASK, bytes, bytes)(b"", timeout=CALL_SECONDS)


class Held:
    """An open stream that is read and written by hand."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call = channel.stream_stream(HOLD, bytes, bytes)()

    async def ask(self, request: bytes) -> bytes:
        await self.call.write(request)
        answer = await self.call.read()
        assert isinstance(answer, bytes)
        return answer


def open_connections(channel: grpc.aio.Channel) -> int:
    assert isinstance(channel, CredentialChannelAio)
    return 1 + len(channel._connections._old)


async def eventually(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(CALL_SECONDS):
        while not look():  # noqa: ASYNC110 - gRPC tells of the end of a call in its own time
            await asyncio.sleep(0.005)


async def test_a_client_that_shows_nothing_has_grpcs_own_channel(plain_server: ShowingServer) -> None:
    async with await dial_aio(parse_addresses(f"127.0.0.1:{plain_server.port}")) as channel:
        assert not isinstance(channel, CredentialChannelAio)
        assert await ask(channel) == b"- -"


async def test_every_kind_of_call_shows_the_token(plain_server: ShowingServer) -> None:
    addresses = parse_addresses(f"127.0.0.1:{plain_server.port}")
    shown = b"Bearer synchub_t -"

    async def requests() -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async with await dial_aio(addresses, credentials=Credentials(token="synchub_t")) as channel:
        assert await ask(channel) == shown
        listed = channel.unary_stream(LIST, bytes, bytes)(b"1", timeout=CALL_SECONDS)
        assert [each async for each in listed] == [b"1", shown]
        counted = channel.stream_unary(COUNT, bytes, bytes)(requests(), timeout=CALL_SECONDS)
        assert await counted == b"2 " + shown
        held = channel.stream_stream(HOLD, bytes, bytes)(requests(), timeout=CALL_SECONDS)
        assert [each async for each in held] == [b"1 " + shown, b"2 " + shown]
        assert await Held(channel).ask(b"3") == b"3 " + shown


async def test_metadata_of_the_caller_is_sent_besides(plain_server: ShowingServer) -> None:
    addresses = parse_addresses(f"127.0.0.1:{plain_server.port}")
    async with await dial_aio(addresses, credentials=Credentials(token="t")) as channel:
        asked = channel.unary_unary(ASK, bytes, bytes)
        for metadata in (grpc.aio.Metadata(("x-request-id", "7")), (("x-request-id", "7"),)):
            assert await asked(b"", metadata=metadata, timeout=CALL_SECONDS) == b"Bearer t -"


async def test_credentials_that_cannot_be_read_are_told_before_anything_is_dialled(
    files: ClientFiles,
) -> None:
    with pytest.raises(CredentialsError, match="No such file"):
        await dial_aio(parse_addresses("127.0.0.1:1"), credentials=Credentials(token_file=files.token))


async def test_token_and_certificates_are_replaced_under_an_open_channel_and_the_open_stream_goes_on(
    tls_server: ShowingServer,
    files: ClientFiles,
    authority: trustme.CA,
    source: CredentialSource,
    clock: Clock,
) -> None:
    addresses = parse_addresses(f"127.0.0.1:{tls_server.port}")
    async with await dial_aio(addresses, credentials=source) as channel:
        held = Held(channel)
        assert await held.ask(b"1") == b"1 Bearer old old"
        files.put_token("new")
        files.put_certificate(authority, "new")
        assert await ask(channel) == b"Bearer old old"
        clock.seconds += LOOK_SECONDS
        assert await ask(channel) == b"Bearer new new"
        assert await held.ask(b"2") == b"2 Bearer old old"
        assert open_connections(channel) == 2
        await held.call.done_writing()
        assert await held.call.read() is grpc.aio.EOF
        await eventually(lambda: open_connections(channel) == 1)
        assert await ask(channel) == b"Bearer new new"


async def test_a_stream_that_is_cancelled_is_over(
    tls_server: ShowingServer,
    files: ClientFiles,
    authority: trustme.CA,
    source: CredentialSource,
    clock: Clock,
) -> None:
    addresses = parse_addresses(f"127.0.0.1:{tls_server.port}")
    async with await dial_aio(addresses, credentials=source) as channel:
        held = Held(channel)
        await held.ask(b"1")
        held.call.cancel()
        await eventually(held.call.done)
        files.put_certificate(authority, "new")
        clock.seconds += LOOK_SECONDS
        assert await ask(channel) == b"Bearer old new"
        assert open_connections(channel) == 1


async def test_old_connections_are_bounded_the_oldest_stream_ends(
    tls_server: ShowingServer,
    files: ClientFiles,
    authority: trustme.CA,
    source: CredentialSource,
    clock: Clock,
) -> None:
    addresses = parse_addresses(f"127.0.0.1:{tls_server.port}")
    async with await dial_aio(addresses, credentials=source) as channel:
        streams: list[Held] = []
        for number in range(OLD_CONNECTIONS_MAX + 2):
            files.put_certificate(authority, f"c{number}")
            clock.seconds += LOOK_SECONDS
            streams.append(Held(channel))
            assert await streams[-1].ask(b"a") == b"a Bearer old c%d" % number
        assert open_connections(channel) == OLD_CONNECTIONS_MAX + 1
        await eventually(streams[0].call.done)
        for number, held in enumerate(streams[1:], 1):
            assert await held.ask(b"b") == b"b Bearer old c%d" % number


async def test_the_state_is_that_of_the_newest_connection(
    tls_server: ShowingServer, source: CredentialSource
) -> None:
    addresses = parse_addresses(f"127.0.0.1:{tls_server.port}")
    async with await dial_aio(addresses, credentials=source) as channel:
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE
        async with asyncio.timeout(CALL_SECONDS):
            await channel.channel_ready()
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        waiting = asyncio.create_task(channel.wait_for_state_change(grpc.ChannelConnectivity.IDLE))
        async with asyncio.timeout(CALL_SECONDS):
            await waiting


async def test_a_connection_that_is_watched_outlives_its_certificate_until_it_is_lost(
    files: ClientFiles, authority: trustme.CA, source: CredentialSource, clock: Clock
) -> None:
    shown = server_credentials(authority, "127.0.0.1", clients=authority)
    with serving(shown) as server:
        channel = await dial_aio(parse_addresses(f"127.0.0.1:{server.port}"), credentials=source)
        await ask(channel)
        ready = grpc.ChannelConnectivity.READY
        watching = asyncio.create_task(channel.wait_for_state_change(ready))
        await asyncio.sleep(0)
        files.put_certificate(authority, "new")
        clock.seconds += LOOK_SECONDS
        assert await ask(channel) == b"Bearer old new"
        assert open_connections(channel) == 2
        assert not watching.done()
    async with asyncio.timeout(CALL_SECONDS):
        await watching
    await eventually(lambda: open_connections(channel) == 1)
    await channel.close()


async def test_a_channel_that_is_closed_ends_all_its_calls_and_takes_none(
    tls_server: ShowingServer,
    files: ClientFiles,
    authority: trustme.CA,
    source: CredentialSource,
    clock: Clock,
) -> None:
    channel = await dial_aio(parse_addresses(f"127.0.0.1:{tls_server.port}"), credentials=source)
    older = Held(channel)
    await older.ask(b"1")
    files.put_certificate(authority, "new")
    clock.seconds += LOOK_SECONDS
    newer = Held(channel)
    await newer.ask(b"1")
    await channel.close()
    await channel.close()
    for held in (older, newer):
        await eventually(held.call.done)
    files.put_certificate(authority, "newer")
    clock.seconds += LOOK_SECONDS
    with pytest.raises(grpc.aio.UsageError, match="closed"):
        await ask(channel)
