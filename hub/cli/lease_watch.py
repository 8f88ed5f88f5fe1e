"""``synchub leases watch``: each lease as it changes; goes on when the hub comes back."""

from typing import Final

import grpc

from hub.cli.hub_calls import channel_to, message_to_json
from hub.cli.lease_words import line_of
from hub.cli.options import DEFAULT_HUB, HubOption, HubProjectOption, JsonOption, checked_hub_project
from hub.cli.output import print_json
from hub.cli.reconnecting import Reconnecting
from synchub.channel import UNARY_SECONDS_MAX, Refusal, refusal_from_error
from synchub.v1.lease_service_pb2 import GetResourceStateRequest, Lease, LeaseState, WatchLeasesRequest
from synchub.v1.lease_service_pb2_grpc import LeaseServiceStub

EXAMPLES = """Examples:

  synchub leases watch --hub-project demo

  synchub leases watch --hub-project demo --json | jq 'select(.resource == "garden-db")'
"""

_RUNNING: Final = (LeaseState.LEASE_STATE_LIVE, LeaseState.LEASE_STATE_UNCLAIMED)


def watch(
    *, hub: HubOption = DEFAULT_HUB, hub_project: HubProjectOption = "", is_json: JsonOption = False
) -> None:
    """Show the live leases, then each that begins, changes or ends. Ctrl-C ends it.

    Renewals alone are shown with --json only. When the hub goes away, it goes on once the hub is back
    and shows what changed meanwhile; a tenure that began and ended in between shows as a token that
    jumped.
    """
    with channel_to(hub) as channel:
        tenant = checked_hub_project(hub_project)
        _Watch(LeaseServiceStub(channel), tenant, hub=hub, is_json=is_json).follow()


_Key = tuple[str, bool]
"""A resource, and whether it is its maintenance that is meant: the last lease is kept beside it."""


class _Watch:
    """A watch that is begun anew whenever it breaks, and shows nothing twice."""

    def __init__(self, stub: LeaseServiceStub, hub_project: str, *, hub: str, is_json: bool) -> None:
        self._stub = stub
        self._hub_project = hub_project
        self._is_json = is_json
        self._reconnecting = Reconnecting(hub)
        self._shown: dict[_Key, Lease] = {}
        """The leases and maintenances that were shown last as not ended."""

    def follow(self) -> None:
        """Show leases until the process ends, or the hub refuses what does not pass by itself."""
        while True:
            try:
                self._follow_once()
                refusal = Refusal(grpc.StatusCode.UNAVAILABLE, "the hub ended the watch")
            except grpc.RpcError as error:
                refusal = refusal_from_error(error)
            self._reconnecting.wait_after(refusal)

    def _follow_once(self) -> None:
        missing = set(self._shown)
        is_snapshot = True
        for answer in self._stub.WatchLeases(WatchLeasesRequest(hub_project=self._hub_project)):
            self._reconnecting.answered()
            for lease in answer.leases:
                missing.discard(_key_of(lease))
                self._show(lease)
            if is_snapshot and answer.is_snapshot_complete:
                is_snapshot = False
                self._show_ended(missing)

    def _show_ended(self, missing: set[_Key]) -> None:
        """Show what ended while nobody watched: it was live and is not in the snapshot."""
        for key in sorted(missing):
            resource, is_maintenance = key
            request = GetResourceStateRequest(hub_project=self._hub_project, resource=resource)
            state = self._stub.GetResourceState(request, timeout=UNARY_SECONDS_MAX)
            tenure = state.maintenance if is_maintenance else state.lease
            if tenure.resource:
                self._show(tenure)
            else:
                del self._shown[key]

    def _show(self, lease: Lease) -> None:
        key = _key_of(lease)
        before = self._shown.pop(key, None)
        if lease.state in _RUNNING:
            self._shown[key] = lease
        if before == lease:
            return
        if self._is_json:
            print_json(message_to_json(lease))
        elif before is None or _without_renewal(before) != _without_renewal(lease):
            print(line_of(lease), flush=True)


def _key_of(lease: Lease) -> _Key:
    return lease.resource, lease.is_maintenance


def _without_renewal(lease: Lease) -> Lease:
    """Return a lease without what every renewal changes."""
    rest = Lease()
    rest.CopyFrom(lease)
    for name in ("renew_time", "expire_time"):
        rest.ClearField(name)
    return rest
