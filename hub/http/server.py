"""Serves the HTTP pages on the hub's own event loop, with or without TLS."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from hub.certificate_files import CertificateFiles
from hub.core.errors import StartRefused

HEADERS_SECONDS_MAX = 5
"""How long an idle connection is kept."""
CONNECTION_SECONDS_MAX = 30
"""How long a connection may live in all, so that who sends a byte now and then cannot hold all of them."""
HANDSHAKE_SECONDS_MAX = 10
"""How long a connection may take for the handshake of TLS, and then for its first request."""
CONNECTIONS_MAX = 256
"""Connections served at once; more are answered 503."""
CLOSE_SECONDS_MAX = 2
"""How long requests may take to end at a stop."""


class HttpServer:
    """One HTTP server: bound at once, so that its port is known, served by ``serve``."""

    def __init__(
        self, app: Starlette, *, host: str, port: int, certificates: CertificateFiles | None
    ) -> None:
        """Bind the address, for TLS where there are certificates.

        Raises: StartRefused where it is in use.
        """
        self._socket = _bound(host, port)
        self._server = _EmbeddedServer(
            uvicorn.Config(
                app,
                http=_BoundedProtocol,
                log_config=None,
                # Else whoever sends junk writes a line of the log with each.
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=HEADERS_SECONDS_MAX,
                timeout_graceful_shutdown=CLOSE_SECONDS_MAX,
                limit_concurrency=CONNECTIONS_MAX,
            ),
            tls=None if certificates is None else certificates.http_context(),
        )

    @property
    def port(self) -> int:
        """The port that it really has."""
        return int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Answer requests until ``stop``."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Let ``serve`` return, soon."""
        self._server.should_exit = True


class _EmbeddedServer(uvicorn.Server):
    """A server that leaves the process's signals to the hub, and listens with its TLS."""

    def __init__(self, config: uvicorn.Config, *, tls: ssl.SSLContext | None) -> None:
        """Keep them; nothing runs yet."""
        super().__init__(config)
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. Uvicorn's own way knows files of certificates, and no bound of a handshake."""
        self.servers = [
            await asyncio.get_running_loop().create_server(
                lambda: _BoundedProtocol(self.config, self.server_state, self.lifespan.state),
                sock=listening,
                backlog=self.config.backlog,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS_MAX,
            )
            for listening in sockets or ()
        ]
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _BoundedProtocol(H11Protocol):
    """A connection that ends after a time, whatever it does."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base
        """Begin, and set the end."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        loop.call_later(HANDSHAKE_SECONDS_MAX, self._end_where_nothing_was_asked)
        loop.call_later(CONNECTION_SECONDS_MAX, transport.abort)

    def _end_where_nothing_was_asked(self) -> None:
        if self.cycle is None:  # as it is before the first request, whatever its type says
            self.transport.abort()  # type: ignore[unreachable]


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        sentence = f"cannot listen on {host}:{port} for HTTP: {error.strerror}."
        hint = "Give another address with --http, or none with --http none."
        raise StartRefused(sentence, hint) from error
    listening.setblocking(False)
    return listening
