"""Reflection finds what grpcurl asks for, also the parts of services and messages."""

import pytest

from hub.rpc.reflected_pool import ReflectedPool
from synchub.v1 import alert_pb2, sync_event_pb2, sync_service_pb2


@pytest.mark.parametrize(
    ("symbol", "file_name"),
    [
        ("synchub.v1.SyncService", sync_service_pb2.DESCRIPTOR.name),
        ("synchub.v1.SyncService.PushEvents", sync_service_pb2.DESCRIPTOR.name),
        ("synchub.v1.SyncEvent.sequence", sync_event_pb2.DESCRIPTOR.name),
        ("synchub.v1.AlertReason.ALERT_REASON_HISTORY_LOST", alert_pb2.DESCRIPTOR.name),
    ],
)
def test_a_symbol_is_found_in_its_file(symbol: str, file_name: str) -> None:
    assert ReflectedPool().FindFileContainingSymbol(symbol).name == file_name


@pytest.mark.parametrize(
    "symbol", ["", "Nothing", "synchub.v1.SyncService.Nothing", "synchub.v1.Nothing.PushEvents"]
)
def test_a_symbol_that_is_not_there_is_not_found(symbol: str) -> None:
    with pytest.raises(KeyError):
        ReflectedPool().FindFileContainingSymbol(symbol)
