"""What the tests of the link share: a runtime, and the hub that it speaks to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.unit.runtime_agent.hub_client.link_runtime import Runtime
from tests.unit.runtime_agent.hub_client.wire_hub import WireHub


@pytest_asyncio.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    runtime = Runtime(tmp_path)
    yield runtime
    await asyncio.to_thread(runtime.log.stop)
    assert runtime.notes.mistakes == []


@pytest.fixture
def hub() -> WireHub:
    return WireHub()
