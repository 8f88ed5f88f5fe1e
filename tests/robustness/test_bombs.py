"""Messages that are small on the wire and huge once they are unfolded: refused, with memory bounded."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest

from synchub.channel import refusal_from_error
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from tests.contract.every_method import method_named
from tests.robustness.fuzz_bytes import varint
from tests.robustness.fuzz_calls import as_they_are
from tests.robustness.programs import Program

MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
AT_ONCE: Final = 12
MEBIBYTE: Final = 1024 * 1024
GROWTH_BYTES_MAX: Final = 400 * MEBIBYTE
"""What the hub may grow by: what lies on the wire, some copies of it, and one of the smaller bombs unfolded.
Unfolded, the messages below take 200 to 700 MB each."""
CALL_SECONDS_MAX: Final = 60.0


def _field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def _many(part: bytes, *, bytes_max: int = MESSAGE_BYTES_MAX - 64) -> bytes:
    return part * (bytes_max // len(part))


BOMBS: Final = {
    "millions of empty events": ("SyncService/PushEvents", _many(_field(7, b""))),
    "an empty attribute in each of them": ("SyncService/PushEvents", _many(_field(7, _field(4, b"")))),
    "all of them in one event": ("SyncService/PushEvents", _field(7, _many(_field(4, b"")))),
    "in a commit": ("JournalService/Commit", _many(_field(6, b""))),
    "in its outbox": ("JournalService/Commit", _many(_field(7, b""))),
    "in a reconcile": ("SyncService/ReconcileRuns", _many(_field(5, b""))),
    "in a heartbeat": ("PresenceService/Heartbeat", _many(_field(8, b""))),
    "in renewals": ("LeaseService/RenewLeases", _many(_field(2, b""))),
    "event types": ("SyncService/WatchEvents", _many(_field(4, b""))),
    "states, packed": ("PresenceService/ListRuntimes", _field(2, bytes(MESSAGE_BYTES_MAX - 64))),
    "groups that nobody knows": ("SyncService/GetRun", _many(b"\x7b\x7c")),
}


class HubProcess:
    """A hub whose memory is looked at."""

    def __init__(self, folder: Path) -> None:
        arguments = [
            "hub",
            "serve",
            "--db",
            str(folder / "hub.db"),
            "--listen",
            "127.0.0.1:0",
            "--http",
            "none",
        ]
        self.program = Program(arguments, folder / "hub.log")
        self.address = self.program.start().split()[2]

    def begin(self) -> int:
        """Return how much memory it has in use, and begin to look for the most."""
        Path(f"/proc/{self.program.pid}/clear_refs").write_text("5", encoding="ascii")  # see proc(5)
        return self.peak_bytes()

    def peak_bytes(self) -> int:
        """The most memory that it had in use since then."""
        status = Path(f"/proc/{self.program.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    process = HubProcess(tmp_path_factory.mktemp("hub"))
    yield process
    assert process.program.stop() == 0


@pytest.mark.parametrize("name", BOMBS)
async def test_a_message_that_unfolds_to_hundreds_of_megabytes_is_refused_before(
    hub: HubProcess, name: str
) -> None:
    method_name, bomb = BOMBS[name]
    method = method_named(method_name)
    before = await asyncio.to_thread(hub.begin)
    async with grpc.aio.insecure_channel(hub.address) as channel:

        async def send() -> str:
            try:
                if method.is_request_stream:
                    both = channel.stream_stream(method.path, as_they_are, as_they_are)
                    async for _ in both(iter([bomb]), timeout=CALL_SECONDS_MAX):
                        pass
                elif method.is_response_stream:
                    stream = channel.unary_stream(method.path, as_they_are, as_they_are)
                    async for _ in stream(bomb, timeout=CALL_SECONDS_MAX):
                        pass
                else:
                    one = channel.unary_unary(method.path, as_they_are, as_they_are)
                    await one(bomb, timeout=CALL_SECONDS_MAX)
            except grpc.RpcError as error:
                return refusal_from_error(error).reason
            return ""

        assert await asyncio.gather(*(send() for _ in range(AT_ONCE))) == ["INVALID_REQUEST"] * AT_ONCE
        await HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=CALL_SECONDS_MAX)
    growth = await asyncio.to_thread(hub.peak_bytes) - before
    assert growth <= GROWTH_BYTES_MAX, f"{growth / MEBIBYTE:.0f} MiB"


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("size", [MESSAGE_BYTES_MAX + 2, 256 * MEBIBYTE])
async def test_what_is_compressed_counts_as_large_as_it_is_inflated(
    hub: HubProcess, algorithm: grpc.Compression, size: int
) -> None:
    before = await asyncio.to_thread(hub.begin)
    method = method_named("SyncService/ListRuns")
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(hub.address, options=options) as channel:
        one = channel.unary_unary(method.path, as_they_are, as_they_are)
        with pytest.raises(grpc.RpcError) as raised:
            await one(bytes(size), compression=algorithm, timeout=CALL_SECONDS_MAX)
        assert isinstance(raised.value, grpc.aio.AioRpcError)
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await HubServiceStub(channel).GetHubInfo(GetHubInfoRequest(), timeout=CALL_SECONDS_MAX)
    growth = await asyncio.to_thread(hub.peak_bytes) - before
    assert growth <= 8 * MESSAGE_BYTES_MAX, f"{growth / MEBIBYTE:.0f} MiB"
