"""A real log in a folder of its own, and short ways to append to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime_agent.event_log.opening import OwnedLog, take_folder
from runtime_agent.event_log.sqlite_log import SqliteEventLog


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[OwnedLog]:
    held = take_folder(str(tmp_path), role="test")
    yield held
    held.close()


@pytest.fixture
def log(owned: OwnedLog) -> SqliteEventLog:
    return owned.log
