"""HubService, health and reflection, over the wire."""

import time
from importlib.metadata import version

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from hub.core.limits import Limits
from synchub import contract
from synchub.v1.hub_service_pb2 import GetHubInfoRequest, HubLimits
from synchub.v1.hub_service_pb2_grpc import HubServiceStub


def test_the_hub_tells_what_a_client_should_know(hub_stub: HubServiceStub) -> None:
    before = time.time_ns()
    info = hub_stub.GetHubInfo(GetHubInfoRequest())
    assert info.version == version("synchub")
    assert info.engine == "sqlite"
    assert len(info.hub_generation) == 32
    assert list(info.features) == []
    assert before <= info.hub_time.ToNanoseconds() <= time.time_ns() + contract.NANOS_PER_SECOND


def test_the_limits_are_those_in_force(hub_stub: HubServiceStub) -> None:
    told = hub_stub.GetHubInfo(GetHubInfoRequest()).limits
    limits = Limits()
    for field in HubLimits.DESCRIPTOR.fields:
        if field.message_type is None:
            assert getattr(told, field.name) == getattr(limits, field.name)
    assert told.heartbeat_interval.ToSeconds() == 10
    assert told.presence_ttl.ToSeconds() == 30
    assert told.lease_ttl_min.ToSeconds() == 1
    assert told.lease_ttl_max.ToSeconds() == 3_600
    assert told.lease_ttl_default.ToSeconds() == 10
    assert told.maintenance_ttl_default.ToSeconds() == 30
    assert told.lease_wait_max.ToSeconds() == 600
    assert told.outbox_visibility_default.ToSeconds() == 30
    assert told.outbox_visibility_max.ToSeconds() == 3_600
    assert told.outbox_return_delay_max.ToSeconds() == 86_400


def test_the_generation_does_not_change_while_the_store_lives(hub_stub: HubServiceStub) -> None:
    first, second = (hub_stub.GetHubInfo(GetHubInfoRequest()) for _ in range(2))
    assert first.hub_generation == second.hub_generation
    assert first.hub_time.ToNanoseconds() < second.hub_time.ToNanoseconds()


def test_health_is_told_overall_and_for_each_service(grpc_channel: grpc.Channel) -> None:
    check = grpc_channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    for service in ("", "SyncService", "PresenceService", "LeaseService", "JournalService", "HubService"):
        full_name = service and f"synchub.v1.{service}"
        answer = check(health_pb2.HealthCheckRequest(service=full_name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_services_and_knows_the_details_of_errors(grpc_channel: grpc.Channel) -> None:
    reflect = grpc_channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = (
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="google.rpc.ErrorInfo"),
    )
    listed, error_details = reflect(iter(requests))
    assert {service.name for service in listed.list_services_response.service} == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "synchub.v1.HubService",
        "synchub.v1.JournalService",
        "synchub.v1.LeaseService",
        "synchub.v1.PresenceService",
        "synchub.v1.SyncService",
    }
    assert error_details.file_descriptor_response.file_descriptor_proto
