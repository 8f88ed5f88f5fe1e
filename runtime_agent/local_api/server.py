"""Listening on the agent's socket."""

import os
from contextlib import suppress

import grpc.aio
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha import reflection

from runtime_agent.core.errors import LogStorageError
from runtime_agent.local_api.service import RuntimeAgentServicer
from runtime_agent.local_api.socket_path import SocketPath
from synchub.contract import MESSAGE_BYTES_MAX
from synchub.v1 import runtime_agent_service_pb2, runtime_agent_service_pb2_grpc

SERVER_OPTIONS = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
)
"""The options of the local server, as (key, value)."""

# Reflection shows error details to grpcurl only where their descriptors are loaded.
_ERROR_DETAILS = error_details_pb2.DESCRIPTOR


class LocalServer:
    """The local service of one agent, from ``start`` to ``stop``.

    The caller holds the data folder: a socket that lies there is a dead agent's, and is replaced.
    """

    def __init__(self, folder: str, servicer: RuntimeAgentServicer) -> None:
        self._socket = SocketPath(folder)
        self._servicer = servicer
        self._server: grpc.aio.Server | None = None

    async def start(self) -> str:
        """Listen, and return the socket's path. It is open to its owner alone (mode 0600).

        Raises: LogStorageError where the socket cannot be made.
        """
        with suppress(FileNotFoundError):
            os.unlink(self._socket.path)
        server = grpc.aio.server(options=SERVER_OPTIONS)
        runtime_agent_service_pb2_grpc.add_RuntimeAgentServiceServicer_to_server(self._servicer, server)
        name = runtime_agent_service_pb2.DESCRIPTOR.services_by_name["RuntimeAgentService"].full_name
        reflection.enable_server_reflection((name, reflection.SERVICE_NAME), server)
        umask = os.umask(0o177)
        try:
            server.add_insecure_port(self._socket.target)
        except RuntimeError as error:
            raise LogStorageError(self._socket.path, "the socket cannot be made") from error
        finally:
            os.umask(umask)
        await server.start()
        self._server = server
        return self._socket.path

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls, give the open ones the grace, then end them. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            self._servicer.stop_tails()
            await server.stop(grace_seconds)
            with suppress(FileNotFoundError):
                os.unlink(self._socket.path)
        self._socket.close()
