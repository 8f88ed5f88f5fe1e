"""Connections that show credentials: what the blocking channel and the one for event loops have in common.

gRPC's certificates are fixed for the life of a channel. So each call goes over an inner channel that was
dialled with the certificates of its moment: once they change, new calls go over a new one, and the old one is
closed when its last call is over. The token goes into the metadata of each call.

Interceptors are not used: those of ``grpc.aio`` break the calls that are read and written by hand.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from synchub.credentials import CredentialSource, TlsContents

ChannelT = TypeVar("ChannelT")
Method = TypeVar("Method")

OLD_CONNECTIONS_MAX: Final = 4
"""Connections with certificates that were replaced whose calls may go on; beyond it the oldest is closed."""


class Connection(Generic[ChannelT]):
    """An inner channel and how many calls are on it."""

    def __init__(self, channel: ChannelT, tls: TlsContents | None) -> None:
        self.channel = channel
        self.tls = tls
        self.call_count = 0


class Connections(Generic[ChannelT]):
    """The inner channel for new calls, and the old ones whose calls are not over. Safe to share."""

    def __init__(
        self,
        source: CredentialSource,
        *,
        dial: Callable[[TlsContents | None], ChannelT],
        close: Callable[[ChannelT], None],
    ) -> None:
        """``close`` ends an inner channel that nobody needs any more; it may be called from any thread."""
        self._source = source
        self._dial = dial
        self._close = close
        self._lock = threading.Lock()
        tls = source.current().tls
        self._newest = Connection(dial(tls), tls)
        self._old: deque[Connection[ChannelT]] = deque()
        self.is_closed = False

    @property
    def newest(self) -> ChannelT:
        """The channel that the last new call went over, or the next one will."""
        return self._newest.channel

    def borrow(self) -> tuple[Connection[ChannelT], str]:
        """Return the connection for a new call, and the token that it shows; ``give_back`` it once."""
        ended: list[Connection[ChannelT]] = []
        with self._lock:
            # With the lock held, so that nobody goes back to contents that another has seen replaced.
            contents = self._source.current()
            if self._newest.tls != contents.tls and not self.is_closed:
                ended = self._replace(contents.tls)
            connection = self._newest
            connection.call_count += 1
        for each in ended:
            self._close(each.channel)
        return connection, contents.token

    def hold(self) -> Connection[ChannelT]:
        """Return the newest connection to be watched: it stays open until it is given back."""
        with self._lock:
            self._newest.call_count += 1
            return self._newest

    def give_back(self, connection: Connection[ChannelT]) -> None:
        """A call is over."""
        with self._lock:
            connection.call_count -= 1
            is_ended = connection.call_count == 0 and connection in self._old
            if is_ended:
                self._old.remove(connection)
        if is_ended:
            self._close(connection.channel)

    def take_all(self) -> list[ChannelT]:
        """Return the inner channels that are open, to be closed; from now on none is made."""
        with self._lock:
            self.is_closed = True
            channels = [self._newest.channel, *(each.channel for each in self._old)]
            self._old.clear()
        return channels

    def _replace(self, tls: TlsContents | None) -> list[Connection[ChannelT]]:
        """Put a new connection in the place of the newest; return which are to be closed now."""
        self._old.append(self._newest)
        self._newest = Connection(self._dial(tls), tls)
        ended = [each for each in self._old if each.call_count == 0]
        for each in ended:
            self._old.remove(each)
        while len(self._old) > OLD_CONNECTIONS_MAX:
            ended.append(self._old.popleft())
        return ended


class LentMethod(Generic[ChannelT, Method]):
    """A method of a service on whichever connection a call goes over."""

    def __init__(self, connections: Connections[ChannelT], method_on: Callable[[ChannelT], Method]) -> None:
        self._connections = connections
        self._method_on = method_on
        self._last: tuple[Connection[ChannelT], Method] | None = None

    def borrow(
        self, metadata: Iterable[tuple[str, str | bytes]] | None
    ) -> tuple[Method, tuple[tuple[str, str | bytes], ...], Callable[[], None]]:
        """Return the method, the metadata with the token, and what to call once when the call is over."""
        connection, token = self._connections.borrow()
        last = self._last
        if last is None or last[0] is not connection:
            self._last = last = (connection, self._method_on(connection.channel))
        shown = (*(metadata or ()), ("authorization", f"Bearer {token}")) if token else tuple(metadata or ())
        return last[1], shown, lambda: self._connections.give_back(connection)
