"""A real hub on an event loop of its own, in a thread, over a real store."""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Final, Self, TypeVar

from hub.app import RunningHub, running_hub
from hub.config import HubSettings

Result = TypeVar("Result")

START_SECONDS_MAX: Final = 20.0
STOP_SECONDS_MAX: Final = 20.0


class HubInThread:
    """Runs a hub for the length of a block."""

    def __init__(self, settings: HubSettings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._bound = threading.Event()
        self._stopping = asyncio.Event()
        self._hastened = asyncio.Event()
        self._running: RunningHub | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._bound.wait(START_SECONDS_MAX), "the hub did not start in time"
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.begin_stop()
        self.join()

    @property
    def address(self) -> str:
        assert self._running is not None
        return self._running.address

    @property
    def http_address(self) -> str:
        assert self._running is not None
        assert self._running.http_address is not None
        return self._running.http_address

    def begin_stop(self) -> None:
        """Do what SIGTERM does; returns at once."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)

    def hasten(self) -> None:
        """Do what a second SIGTERM does."""
        self._loop.call_soon_threadsafe(self._hastened.set)

    def join(self) -> None:
        """Wait until the hub has stopped."""
        self._thread.join(STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), "the hub did not stop in time"
        if self._error is not None:
            raise self._error

    def run(self, work: Coroutine[None, None, Result]) -> Result:
        """Run something on the hub's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS_MAX)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits in another thread
            self._error = error
        finally:
            self._bound.set()

    async def _serve(self) -> None:
        async with running_hub(self._settings, hastened=self._hastened) as self._running:
            self._bound.set()
            await self._stopping.wait()
