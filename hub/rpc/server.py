"""The gRPC server: made inside the running loop, bound to loopback, stopped in the right order."""

import importlib
import ipaddress
from collections.abc import Callable, Sequence
from typing import Final, cast

import grpc
import grpc.aio
from google.protobuf.descriptor_pool import DescriptorPool

# Registers the details of errors with reflection, so that grpcurl prints them.
from google.rpc import error_details_pb2  # noqa: F401
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hub.core.errors import StartRefused
from hub.rpc.interceptors import RefusalInterceptor
from hub.rpc.options import server_options
from hub.rpc.reflected_pool import ReflectedPool

REFLECTION_SERVICE: Final = reflection.SERVICE_NAME
HEALTH_SERVICE: Final = health.SERVICE_NAME

AddServices = Callable[[grpc.aio.Server], Sequence[str]]
"""Adds services to a server and returns their full names."""


class HubServer:
    """One server with health and reflection beside its services."""

    def __init__(
        self,
        add_services: AddServices,
        *,
        interceptor: RefusalInterceptor,
        message_bytes_max: int,
        is_channelz_enabled: bool,
    ) -> None:
        """Make the server; call inside the running loop. Nothing is bound yet."""
        self._server = grpc.aio.server(
            interceptors=[interceptor],
            options=server_options(
                message_bytes_max=message_bytes_max, is_channelz_enabled=is_channelz_enabled
            ),
        )
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._service_names = tuple(add_services(self._server))
        reflection.enable_server_reflection(
            (*self._service_names, HEALTH_SERVICE, REFLECTION_SERVICE),
            self._server,
            # It is used by its look-ups only.
            pool=cast("DescriptorPool", ReflectedPool()),
        )
        if is_channelz_enabled:
            _add_channelz(self._server)

    def bind(self, host: str, port: int) -> int:
        """Bind an address and return its port, which is another one where 0 was asked for.

        Raises: StartRefused where it is in use.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            bound_port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            sentence = f"cannot listen on {address}."
            hint = "Another program, maybe another hub, has the port: give another one with --listen."
            raise StartRefused(sentence, hint) from error
        return bound_port

    async def start(self) -> None:
        """Take calls; health says SERVING."""
        for service_name in self._service_names:
            await self._health.set(service_name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def say_not_serving(self) -> None:
        """Tell whoever asks or watches the health that the hub will stop."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_seconds: float) -> None:
        """Close the port, give calls so long to end, and cancel the rest."""
        await self._server.stop(grace_seconds)


def refuse_beyond_loopback(host: str, *, flag: str) -> None:
    """Return where an address is reachable from this machine only.

    Raises: StartRefused: without credentials whoever reaches the hub may do everything.
    """
    if host == "localhost":
        return
    try:
        is_loopback = ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        sentence = f"{flag} {host} is not a loopback address, and this hub has no credentials yet."
        raise StartRefused(sentence, "Listen on 127.0.0.1 or [::1], and bring others in by an SSH tunnel.")


def _add_channelz(server: grpc.aio.Server) -> None:
    """Serve gRPC's own view of its channels and sockets, for debugging.

    Raises: StartRefused where the package is not installed; most hubs do without.
    """
    try:
        channelz = importlib.import_module("grpc_channelz.v1.channelz")
    except ImportError as error:
        sentence = "--channelz needs the package grpcio-channelz, which is not installed."
        raise StartRefused(sentence, "Install it beside the hub, or start without --channelz.") from error
    channelz.add_channelz_servicer(server)
