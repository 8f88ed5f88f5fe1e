"""Every method of the contract, as the descriptors have them: for tests that leave none out."""

from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from synchub.v1 import (
    hub_service_pb2,
    journal_service_pb2,
    lease_service_pb2,
    presence_service_pb2,
    sync_service_pb2,
)

FILES: Final[tuple[FileDescriptor, ...]] = (
    sync_service_pb2.DESCRIPTOR,
    presence_service_pb2.DESCRIPTOR,
    lease_service_pb2.DESCRIPTOR,
    journal_service_pb2.DESCRIPTOR,
    hub_service_pb2.DESCRIPTOR,
)


@dataclass(frozen=True, slots=True)
class Method:
    """A method: ``name`` is "SyncService/PushEvents", ``path`` what stands on the wire."""

    name: str
    path: str
    request_class: type[Message]
    response_class: type[Message]
    is_request_stream: bool
    is_response_stream: bool

    def __str__(self) -> str:
        return self.name


def _method(service: str, descriptor: MethodDescriptor) -> Method:
    return Method(
        name=f"{service}/{descriptor.name}",
        path=f"/synchub.v1.{service}/{descriptor.name}",
        request_class=GetMessageClass(descriptor.input_type),
        response_class=GetMessageClass(descriptor.output_type),
        is_request_stream=descriptor.client_streaming,
        is_response_stream=descriptor.server_streaming,
    )


METHODS: Final[tuple[Method, ...]] = tuple(
    _method(service.name, method)
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
)


HEALTH_CHECK: Final = Method(
    "Health/Check",
    f"/{HEALTH}/Check",
    HealthCheckRequest,
    HealthCheckResponse,
    is_request_stream=False,
    is_response_stream=False,
)
OPEN_METHODS: Final = (
    HEALTH_CHECK,
    Method(
        "Health/Watch",
        f"/{HEALTH}/Watch",
        HealthCheckRequest,
        HealthCheckResponse,
        is_request_stream=False,
        is_response_stream=True,
    ),
    Method(
        "ServerReflection/ServerReflectionInfo",
        f"/{REFLECTION}/ServerReflectionInfo",
        ServerReflectionRequest,
        ServerReflectionResponse,
        is_request_stream=True,
        is_response_stream=True,
    ),
)
"""Methods of gRPC's own that everybody may call."""


def method_named(name: str) -> Method:
    """Return a method by its name."""
    (found,) = (method for method in METHODS if method.name == name)
    return found
