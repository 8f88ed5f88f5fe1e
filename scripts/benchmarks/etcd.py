"""etcd beside the hub: a server of one member on the same disk, and a caller that locks a key with it.

What a holder does, by etcd's documented API (v3): ``LeaseGrant`` and a ``Txn`` that puts the key if it
is absent (two calls, both durable), ``LeaseKeepAlive`` on an open stream (kept in memory only: after
a restart every lease begins its time anew), ``LeaseRevoke`` (durable; deletes the key). These four
messages are small and encoded by hand, as the project needs no client of etcd otherwise.
"""

import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

from scripts.benchmarks.hub_process import Server, end_process

if TYPE_CHECKING:
    # Generic in its stubs only.
    BytesCall = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    BytesStream = grpc.aio.StreamStreamCall[bytes, bytes]

READY_SECONDS_MAX = 20
VARINT, LENGTH_DELIMITED = 0, 2
TTL_SECONDS = 10

GRANTED_ID = 2
"""The field of a granted lease's id."""
KEPT_ALIVE_TTL = 3
"""The field of how many seconds a lease goes on; absent where the lease is gone."""
TXN_SUCCEEDED = 2
"""The field that says whether what was compared is so."""
TARGET_CREATE_REVISION = 1
"""What is compared: the revision at which a key was created, 0 where it is absent."""


def etcd_version() -> str | None:
    """Return the version of the installed etcd, None where there is none."""
    if shutil.which("etcd") is None:
        return None
    said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].removeprefix("etcd Version: ")


@asynccontextmanager
async def running_etcd(folder: Path) -> AsyncIterator[Server]:
    """Run an etcd of one member with its data in the folder; give it once it answers."""
    client, peer = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = ["etcd", "--name", "bench", "--data-dir", str(folder / "etcd"), "--log-level", "error"]
    command += ["--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}"]
    command += ["--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"]
    command += ["--initial-cluster", f"bench=http://{peer}"]
    with (folder / "etcd.log").open("wb") as log:
        # Starting it takes no time worth waiting for elsewhere.
        process = subprocess.Popen(command, stdout=log, stderr=log, text=True)  # noqa: ASYNC220
    try:
        if not await answers(client):
            raise SystemExit(f"etcd did not start: {(folder / 'etcd.log').read_text()}")
        yield Server(client, process.pid)
    finally:
        end_process(process)


async def answers(address: str) -> bool:
    """Return whether an etcd grants a lease in time."""
    async with grpc.aio.insecure_channel(address) as channel:
        grant: BytesCall = channel.unary_unary("/etcdserverpb.Lease/LeaseGrant")
        try:
            await grant(integer(1, TTL_SECONDS), timeout=READY_SECONDS_MAX, wait_for_ready=True)
        except grpc.aio.AioRpcError:
            return False
        return True


def free_port() -> int:
    """Return a port of loopback on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EtcdCaller:
    """Holds one key, again and again."""

    def __init__(self, channel: grpc.aio.Channel, key: str) -> None:
        """Hold nothing yet."""
        self._grant: BytesCall = channel.unary_unary("/etcdserverpb.Lease/LeaseGrant")
        self._txn: BytesCall = channel.unary_unary("/etcdserverpb.KV/Txn")
        self._revoke: BytesCall = channel.unary_unary("/etcdserverpb.Lease/LeaseRevoke")
        self._keeping_alive: BytesStream = channel.stream_stream("/etcdserverpb.Lease/LeaseKeepAlive")()
        self._key = key.encode()
        self._lease_id = 0

    async def acquire(self) -> None:
        """Have a lease granted and put the key under it if it is absent."""
        self._lease_id = integer_in(await self._grant(integer(1, TTL_SECONDS)), GRANTED_ID)
        is_absent = integer(2, TARGET_CREATE_REVISION) + text(3, self._key) + integer(5, 0)
        put = text(1, self._key) + text(2, b"holder") + integer(3, self._lease_id)
        answer = await self._txn(text(1, is_absent) + text(2, text(2, put)))
        if not integer_in(answer, TXN_SUCCEEDED):
            raise SystemExit("a key of etcd is held by another: nothing to measure")

    async def renew(self) -> None:
        """Keep the lease alive."""
        await self._keeping_alive.write(integer(1, self._lease_id))
        answer = await self._keeping_alive.read()
        if not isinstance(answer, bytes) or not integer_in(answer, KEPT_ALIVE_TTL):
            raise SystemExit("a lease of etcd was lost: nothing to measure")

    async def release(self) -> None:
        """Revoke the lease, and the key with it."""
        await self._revoke(integer(1, self._lease_id))

    async def close(self) -> None:
        """End the stream."""
        await self._keeping_alive.done_writing()
        await self._keeping_alive.read()


# --- the encoding of protobuf, as far as it is needed ---------------------------------------------------


def integer(field: int, value: int) -> bytes:
    """Encode a field with a whole number, not negative."""
    return varint(field << 3 | VARINT) + varint(value)


def text(field: int, value: bytes) -> bytes:
    """Encode a field with bytes, a text or a message."""
    return varint(field << 3 | LENGTH_DELIMITED) + varint(len(value)) + value


def varint(value: int) -> bytes:
    """Encode a whole number, seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer_in(message: bytes, field: int) -> int:
    """Return a field with a whole number of a message; 0 where it is absent, as protobuf has it."""
    place = 0
    while place < len(message):
        key, place = decoded_varint(message, place)
        value, place = decoded_varint(message, place)
        if key & 0x7 == LENGTH_DELIMITED:
            place += value
        elif key >> 3 == field:
            return value
    return 0


def decoded_varint(message: bytes, place: int) -> tuple[int, int]:
    """Return the whole number at a place, and the place behind it."""
    value = shift = 0
    while message[place] > 0x7F:
        value |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    return value | message[place] << shift, place + 1
