"""pytest-grpc's fixtures over a real hub: real ``grpc.aio``, real SQLite, a real port."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from hub.config import Endpoint, HubSettings
from hub.core.limits import Limits
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.journal_service_pb2_grpc import JournalServiceStub
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.hub_in_thread import HubInThread
from tests.contract.journal_scene import Scene
from tests.contract.secured import SecuredHub, running_secured_hub


@pytest.fixture(scope="module")
def hub_limits() -> Limits:
    """The limits of the module's hub; a module that needs others overrides this."""
    return Limits()


@pytest.fixture(scope="module")
def hub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's hub has its store, for tests that look into that."""
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def grpc_server(hub_folder: Path, hub_limits: Limits) -> Iterator[HubInThread]:
    """The hub of the module, in place of the plugin's own synchronous server."""
    with HubInThread(settings_in(hub_folder, hub_limits)) as hub:
        yield hub


@pytest.fixture(scope="module")
def grpc_addr(grpc_server: HubInThread) -> str:
    """The address that the hub really has."""
    return grpc_server.address


@pytest.fixture(scope="module")
def sync_stub(grpc_channel: grpc.Channel) -> SyncServiceStub:
    return SyncServiceStub(grpc_channel)


@pytest.fixture(scope="module")
def presence_stub(grpc_channel: grpc.Channel) -> PresenceServiceStub:
    return PresenceServiceStub(grpc_channel)


@pytest.fixture(scope="module")
def lease_stub(grpc_channel: grpc.Channel) -> LeaseServiceStub:
    return LeaseServiceStub(grpc_channel)


@pytest.fixture(scope="module")
def journal_stub(grpc_channel: grpc.Channel) -> JournalServiceStub:
    return JournalServiceStub(grpc_channel)


@pytest.fixture(scope="module")
def hub_stub(grpc_channel: grpc.Channel) -> HubServiceStub:
    return HubServiceStub(grpc_channel)


@pytest.fixture(scope="module")
def secured_hub(tmp_path_factory: pytest.TempPathFactory, hub_limits: Limits) -> Iterator[SecuredHub]:
    """A hub of the module that wants credentials; see ``secured``."""
    with running_secured_hub(settings_in(tmp_path_factory.mktemp("secured"), hub_limits)) as secured:
        yield secured


@pytest.fixture
def scene(
    journal_stub: JournalServiceStub, lease_stub: LeaseServiceStub, *, hub_project: str, hub_folder: Path
) -> Scene:
    """A hub project with something of everything in its journal."""
    return Scene(journal_stub, lease_stub, hub_project, hub_folder / "hub.db")


@pytest.fixture
def hub_project(request: pytest.FixtureRequest) -> str:
    """A tenant of the test's own, so that tests of one hub do not see each other."""
    return str(request.node.name)[:200]


def settings_in(folder: Path, limits: Limits | None = None) -> HubSettings:
    """Settings of a hub over a store in a folder, on any free ports."""
    return HubSettings(
        database=folder / "hub.db",
        listen=Endpoint("127.0.0.1", 0),
        http=Endpoint("127.0.0.1", 0),
        limits=limits or Limits(),
    )
