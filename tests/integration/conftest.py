"""A hub process for a module of tests, and a resource for each of them."""

from collections.abc import Iterator

import grpc
import pytest

from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from tests.integration.hub_process import HubProcess
from tests.integration.leased_resource import Resource


@pytest.fixture(scope="module")
def lease_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    """A hub that nobody restarts."""
    process = HubProcess(tmp_path_factory.mktemp("hub") / "hub.db")
    yield process
    process.stop()


@pytest.fixture
def resource(lease_hub: HubProcess, request: pytest.FixtureRequest) -> Iterator[Resource]:
    """A resource that no other test uses."""
    with grpc.insecure_channel(lease_hub.address) as channel:
        yield Resource(LeaseServiceStub(channel), f"db-of/{request.node.name}")
