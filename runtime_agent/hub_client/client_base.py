"""What the public clients have in common: the channel, its errors, and lists that come page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import grpc
import grpc.aio

from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_maker import LeaseMaker
from synchub.channel import HubAddress, refusal_from_error

Page = TypeVar("Page", bound="_Page")


class _Page(Protocol):
    """A response of a list."""

    next_page_token: str


class _ClientBase:
    """What a client of either kind knows."""

    def __init__(
        self, *, hub_project: str, addresses: tuple[HubAddress, ...], runtime_id: str, instance_id: str
    ) -> None:
        self._hub_project = hub_project
        self._addresses = addresses
        self._maker = LeaseMaker(
            addresses, hub_project=hub_project, runtime_id=runtime_id, instance_id=instance_id
        )

    @property
    def runtime_id(self) -> str:
        """The runtime that holds leases where none is named; this host where the client was given none."""
        return self._maker.runtime_id

    @property
    def instance_id(self) -> str:
        """The holder of leases where none is named; a random id where the client was given none."""
        return self._maker.instance_id

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise HubCallError(refusal_from_error(error), self._addresses) from error


class BlockingClientBase(_ClientBase):
    """The base of ``HubClient``."""

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        hub_project: str,
        addresses: tuple[HubAddress, ...],
        runtime_id: str = "",
        instance_id: str = "",
    ) -> None:
        super().__init__(
            hub_project=hub_project, addresses=addresses, runtime_id=runtime_id, instance_id=instance_id
        )
        self._channel = channel

    def _pages(self, load: Callable[[str], Page]) -> Iterator[Page]:
        page_token = ""
        while True:
            with self._translated():
                page = load(page_token)
            yield page
            page_token = page.next_page_token
            if not page_token:
                return


class AwaitedClientBase(_ClientBase):
    """The base of ``AsyncHubClient``."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        hub_project: str,
        addresses: tuple[HubAddress, ...],
        runtime_id: str = "",
        instance_id: str = "",
    ) -> None:
        super().__init__(
            hub_project=hub_project, addresses=addresses, runtime_id=runtime_id, instance_id=instance_id
        )
        self._channel = channel

    async def _pages(self, load: Callable[[str], Awaitable[Page]]) -> AsyncIterator[Page]:
        page_token = ""
        while True:
            with self._translated():
                page = await load(page_token)
            yield page
            page_token = page.next_page_token
            if not page_token:
                return
