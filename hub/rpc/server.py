"""The gRPC server: made inside the running loop, bound with or without TLS, stopped in the right order."""

import importlib
import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

import grpc
import grpc.aio
from google.protobuf.descriptor_pool import DescriptorPool

# Registers the details of errors with reflection, so that grpcurl prints them.
from google.rpc import error_details_pb2  # noqa: F401
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from hub.certificate_files import CertificateFiles, Certificates
from hub.core.errors import StartRefused
from hub.rpc.health_service import HealthService
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
        self._interceptor = interceptor
        self._server = grpc.aio.server(
            interceptors=[interceptor],
            options=server_options(
                message_bytes_max=message_bytes_max, is_channelz_enabled=is_channelz_enabled
            ),
        )
        self._service_names = tuple(add_services(self._server))
        self._health = HealthService((health.OVERALL_HEALTH, *self._service_names))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*self._service_names, HEALTH_SERVICE, REFLECTION_SERVICE),
            self._server,
            # It is used by its look-ups only.
            pool=cast("DescriptorPool", ReflectedPool()),
        )
        if is_channelz_enabled:
            _add_channelz(self._server)

    def bind(self, host: str, port: int, *, certificates: CertificateFiles | None) -> int:
        """Bind an address, for TLS where there are certificates; return its port, another one for 0.

        Raises: StartRefused where it is in use.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if certificates is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, _server_credentials(certificates))
        except RuntimeError as error:
            sentence = f"cannot listen on {address}."
            hint = (
                "Another program, maybe another hub, has the port, or the address is none of this machine's: "
                "give another one with --listen."
            )
            raise StartRefused(sentence, hint) from error

    def bind_private(self, socket: Path) -> None:
        """Listen on a socket of the hub's own, for its calls to itself."""
        self._server.add_insecure_port(f"unix:{socket}")

    async def start(self) -> None:
        """Take calls; health says SERVING."""
        await self.say_well(True)
        await self._server.start()

    async def say_well(self, is_well: bool) -> None:
        """Tell whoever asks or watches the health of the hub and of each service; after a stop, nothing."""
        response = health_pb2.HealthCheckResponse
        for service_name in (health.OVERALL_HEALTH, *self._service_names):
            await self._health.set(service_name, response.SERVING if is_well else response.NOT_SERVING)

    async def say_not_serving(self) -> None:
        """Tell whoever asks or watches the health that the hub will stop."""
        await self._health.enter_graceful_shutdown()

    async def all_told(self) -> None:
        """Return once no call is being ended by a status that is still to be written."""
        await self._interceptor.all_told.wait()

    async def stop(self, grace_seconds: float) -> None:
        """Close the port, give calls so long to end, and cancel the rest."""
        await self._server.stop(grace_seconds)


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _server_credentials(files: CertificateFiles) -> grpc.ServerCredentials:
    """Return credentials that ask for the certificates of the moment at each handshake."""
    given = files.current

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        current = files.current
        if current is given:
            return None
        given = current
        return _configuration(current)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(given),
        fetch,  # type: ignore[arg-type]  # None says that nothing has changed
        require_client_authentication=files.are_clients_asked,
    )


def _configuration(certificates: Certificates) -> grpc.ServerCertificateConfiguration:
    pair = (certificates.key, certificates.chain)
    return grpc.ssl_server_certificate_configuration([pair], certificates.client_ca)


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
