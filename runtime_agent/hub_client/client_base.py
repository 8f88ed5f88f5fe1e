"""What the public clients have in common: the channel, its errors, and lists that come page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio

from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_calls import JournalCalls
from runtime_agent.hub_client.lease_channel import ClientClosed, LeaseChannel
from runtime_agent.hub_client.lease_maker import LeaseMaker
from synchub.channel import HubAddress, Refusal, refusal_from_error
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven, source_of

Page = TypeVar("Page", bound="_Page")


class _Page(Protocol):
    """A response of a list."""

    next_page_token: str


class _Closing(Protocol):
    """Something that a blocking client ends when it is closed."""

    def close(self) -> None: ...


class _AwaitedClosing(Protocol):
    """The same of a client that awaits."""

    async def close(self) -> None: ...


class _ClientBase:
    """What a client of either kind knows."""

    def __init__(
        self,
        *,
        hub_project: str,
        addresses: tuple[HubAddress, ...],
        credentials: CredentialsGiven,
        runtime_id: str,
        instance_id: str,
    ) -> None:
        self._hub_project = hub_project
        self._addresses = addresses
        # One source for all connections: they show the same at any moment.
        shown = source_of(credentials)
        self._maker = LeaseMaker(
            addresses,
            hub_project=hub_project,
            credentials=shown,
            runtime_id=runtime_id,
            instance_id=instance_id,
        )
        self._journal = JournalCalls(LeaseChannel(addresses, credentials=shown), hub_project)
        self._is_closed = False

    @property
    def hub_project(self) -> str:
        """The tenant that its calls are about; empty for the credential's own."""
        return self._hub_project

    @property
    def runtime_id(self) -> str:
        """The runtime that holds leases where none is named; this host where the client was given none."""
        return self._maker.runtime_id

    @property
    def instance_id(self) -> str:
        """The holder of leases where none is named; a random id where the client was given none."""
        return self._maker.instance_id

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ClientClosed(Refusal(grpc.StatusCode.CANCELLED, "the client is closed"), self._addresses)

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
        credentials: CredentialsGiven = NO_CREDENTIALS,
        runtime_id: str = "",
        instance_id: str = "",
    ) -> None:
        super().__init__(
            hub_project=hub_project,
            addresses=addresses,
            credentials=credentials,
            runtime_id=runtime_id,
            instance_id=instance_id,
        )
        self._channel = channel
        self._closing: WeakSet[_Closing] = WeakSet()

    def close(self) -> None:
        """Close the channels; what is open on them ends, leases that are held are lost. Idempotent.

        Dispatchers give back what they have claimed.
        """
        self._is_closed = True
        for each in list(self._closing):
            each.close()
        self._journal.channel.close()
        self._maker.close()
        self._channel.close()

    def _close_later(self, closing: _Closing) -> None:
        """Close something with the client, at the latest. Raises: ClientClosed."""
        self._refuse_if_closed()
        self._closing.add(closing)

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
        credentials: CredentialsGiven = NO_CREDENTIALS,
        runtime_id: str = "",
        instance_id: str = "",
    ) -> None:
        super().__init__(
            hub_project=hub_project,
            addresses=addresses,
            credentials=credentials,
            runtime_id=runtime_id,
            instance_id=instance_id,
        )
        self._channel = channel
        self._closing: WeakSet[_AwaitedClosing] = WeakSet()

    async def close(self) -> None:
        """Close the channels; what is open on them ends, leases that are held are lost. Idempotent.

        Dispatchers give back what they have claimed.
        """
        self._is_closed = True
        for each in list(self._closing):
            await each.close()
        self._journal.channel.close()
        self._maker.close()
        await self._channel.close()

    def _close_later(self, closing: _AwaitedClosing) -> None:
        """Close something with the client, at the latest. Raises: ClientClosed."""
        self._refuse_if_closed()
        self._closing.add(closing)

    async def _pages(self, load: Callable[[str], Awaitable[Page]]) -> AsyncIterator[Page]:
        page_token = ""
        while True:
            with self._translated():
                page = await load(page_token)
            yield page
            page_token = page.next_page_token
            if not page_token:
                return
