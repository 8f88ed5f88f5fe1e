"""Serves the HTTP pages on the hub's own event loop."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from hub.core.errors import StartRefused

HEADERS_SECONDS_MAX = 5
"""How long an idle connection is kept."""
CONNECTIONS_MAX = 256
"""Connections served at once; more are answered 503."""
CLOSE_SECONDS_MAX = 2
"""How long requests may take to end at a stop."""


class HttpServer:
    """One HTTP server: bound at once, so that its port is known, served by ``serve``."""

    def __init__(self, app: Starlette, *, host: str, port: int) -> None:
        """Bind the address.

        Raises: StartRefused where it is in use.
        """
        self._socket = _bound(host, port)
        self._server = _EmbeddedServer(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_keep_alive=HEADERS_SECONDS_MAX,
                timeout_graceful_shutdown=CLOSE_SECONDS_MAX,
                limit_concurrency=CONNECTIONS_MAX,
            )
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
    """A server that leaves the process's signals to the hub."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


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
