"""A client of the hub for Python programs that need no agent; ``async_client.py`` is its twin.

::

    with HubClient.connect("127.0.0.1:7443", hub_project="acme") as hub:
        for run in hub.list_runs():
            print(run.run, run.cursor)
        for update in hub.watch_events(project_id="build"):
            for event in update.events:
                print(event.position, event.event_type, event.payload)

A hub on a network is asked with credentials, whose files are read again when they change::

    shown = Credentials(token_file="me.token", ca_file="hub-ca.pem")
    with HubClient.connect("hub.example:7443", credentials=shown) as hub: ...

Every failure is a ``HubCallError``: decide on its ``reason`` (the bare reasons of the wire; "" where no
hub answered), show its ``sentence`` to people. Lists are read page by page as they are iterated, so
that memory stays bounded. A program that must not lose events uses the agent instead: it keeps them
while no hub is in sight. The calls about leases are in ``lease_methods.py``, those about the
journal in ``journal_methods.py``.
"""

from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

import grpc

from runtime_agent.core.values import RunKey
from runtime_agent.hub_client import reading_codec as codec
from runtime_agent.hub_client.codec import HubFacts, hub_facts_from_proto
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.journal_methods import JournalMethods
from runtime_agent.hub_client.lease_methods import LeaseMethods
from runtime_agent.hub_client.stored_values import (
    Alert,
    BatchToPush,
    PushResult,
    RuntimeView,
    StoredEvent,
    StoredRun,
    WatchUpdate,
)
from synchub.channel import (
    UNARY_SECONDS_MAX,
    HubAddress,
    dial,
    parse_addresses,
    refusal_from_status,
)
from synchub.credentials import NO_CREDENTIALS, CredentialsGiven, source_of
from synchub.v1 import hub_service_pb2, presence_service_pb2, sync_service_pb2
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.presence_service_pb2_grpc import PresenceServiceStub
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub


class HubClient(LeaseMethods, JournalMethods):
    """Calls to one hub project over one channel. Safe to share among threads; close it after use."""

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        hub_project: str,
        addresses: tuple[HubAddress, ...],
        credentials: CredentialsGiven = NO_CREDENTIALS,
        runtime_id: str = "",
        instance_id: str = "",
    ) -> None:
        super().__init__(
            channel,
            hub_project=hub_project,
            addresses=addresses,
            credentials=credentials,
            runtime_id=runtime_id,
            instance_id=instance_id,
        )
        self._hub = HubServiceStub(channel)
        self._sync = SyncServiceStub(channel)
        self._presence = PresenceServiceStub(channel)

    @classmethod
    def connect(
        cls,
        addresses: str,
        *,
        hub_project: str = "",
        credentials: CredentialsGiven = NO_CREDENTIALS,
        runtime_id: str = "",
        instance_id: str = "",
    ) -> Self:
        """Return a client of the hubs at ``HOST:PORT[,HOST:PORT…]``; the first call connects.

        Runtime and instance are who holds leases where nothing else is said: this host, and a random id.
        With credentials by which the hub knows who calls, the hub project may be left out: it is theirs;
        the runtime has to be given where they are one runtime's.

        Raises: AddressError where the addresses cannot be read, CredentialsError where a file cannot.
        """
        parsed = parse_addresses(addresses)
        shown = source_of(credentials)
        return cls(
            dial(parsed, credentials=shown),
            hub_project=hub_project,
            addresses=parsed,
            credentials=shown,
            runtime_id=runtime_id,
            instance_id=instance_id,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- writing ---

    def push(
        self, batches: Iterable[BatchToPush], *, runtime_id: str, instance_id: str = ""
    ) -> Iterator[PushResult]:
        """Push batches on one stream; yield one result a batch, in order, once it is on stable storage.

        A batch may be pushed again at any time: what is stored is counted as duplicates. What was not
        answered when this raises is unknown: push it again. ``batches`` is read on a thread of gRPC's.
        """
        requests = (
            codec.push_request(
                batch, hub_project=self._hub_project, runtime_id=runtime_id, instance_id=instance_id
            )
            for batch in batches
        )
        with self._translated():
            call = self._sync.PushEvents(requests)
            try:
                for response in call:
                    if response.HasField("error"):
                        refusal = refusal_from_status(response.error)
                        raise HubCallError(refusal, self._addresses, is_in_band=True)
                    yield codec.push_result_from_proto(response)
            finally:
                call.cancel()

    # --- reading ---

    def get_run(self, run: RunKey) -> StoredRun:
        """Return one run. The reason is NOT_FOUND where the hub project has no such run."""
        request = sync_service_pb2.GetRunRequest(
            hub_project=self._hub_project, project_id=run.project_id, run_id=run.run_id
        )
        with self._translated():
            return codec.stored_run_from_proto(self._sync.GetRun(request, timeout=UNARY_SECONDS_MAX).run)

    def list_runs(
        self, *, project_id: str = "", runtime_id: str = "", is_complete: bool | None = None
    ) -> Iterator[StoredRun]:
        """Yield runs, ascending by project and run."""
        request = sync_service_pb2.ListRunsRequest(
            hub_project=self._hub_project,
            project_id=project_id,
            runtime_id=runtime_id,
            is_complete=is_complete,
        )

        def load(page_token: str) -> sync_service_pb2.ListRunsResponse:
            request.page_token = page_token
            return self._sync.ListRuns(request, timeout=UNARY_SECONDS_MAX)

        for page in self._pages(load):
            yield from map(codec.stored_run_from_proto, page.runs)

    def list_events(
        self, run: RunKey, *, after_sequence: int = 0, event_types: Sequence[str] = ()
    ) -> Iterator[StoredEvent]:
        """Yield the events of a run, ascending by sequence."""
        request = sync_service_pb2.ListEventsRequest(
            hub_project=self._hub_project,
            project_id=run.project_id,
            run_id=run.run_id,
            after_sequence=after_sequence,
            event_types=event_types,
        )

        def load(page_token: str) -> sync_service_pb2.ListEventsResponse:
            request.page_token = page_token
            return self._sync.ListEvents(request, timeout=UNARY_SECONDS_MAX)

        for page in self._pages(load):
            yield from map(codec.stored_event_from_proto, page.events)

    def export_events(self, *, project_id: str = "", run_id: str = "") -> Iterator[StoredEvent]:
        """Yield all events, ascending by project, run and sequence."""
        request = sync_service_pb2.ExportEventsRequest(
            hub_project=self._hub_project, project_id=project_id, run_id=run_id
        )
        with self._translated():
            call = self._sync.ExportEvents(request)
            try:
                for response in call:
                    yield from map(codec.stored_event_from_proto, response.events)
            finally:
                call.cancel()

    def watch_events(
        self,
        *,
        project_id: str = "",
        run_id: str = "",
        event_types: Sequence[str] = (),
        after_position: int = 0,
        hub_generation: str = "",
        from_now: bool = False,
    ) -> Iterator[WatchUpdate]:
        """Yield events in the order of their positions: first what is stored, then live, without end.

        To go on after a HubCallError, give the last update's ``progress_position`` and
        ``hub_generation``: nothing is skipped and nothing comes twice. The reason is
        GENERATION_CHANGED where the hub was restored to before that position.
        """
        request = codec.watch_request(
            self._hub_project,
            project_id=project_id,
            run_id=run_id,
            event_types=event_types,
            after_position=after_position,
            hub_generation=hub_generation,
            from_now=from_now,
        )
        with self._translated():
            call = self._sync.WatchEvents(request)
            try:
                for response in call:
                    yield codec.watch_update_from_proto(response)
            finally:
                call.cancel()

    def list_runtimes(self) -> Iterator[RuntimeView]:
        """Yield runtimes, ascending by id, each with its state at the moment of the read."""
        request = presence_service_pb2.ListRuntimesRequest(hub_project=self._hub_project)

        def load(page_token: str) -> presence_service_pb2.ListRuntimesResponse:
            request.page_token = page_token
            return self._presence.ListRuntimes(request, timeout=UNARY_SECONDS_MAX)

        for page in self._pages(load):
            yield from map(codec.runtime_from_proto, page.runtimes)

    def list_alerts(self, *, exclude_acknowledged: bool = False) -> Iterator[Alert]:
        """Yield security alerts, ascending by id."""
        request = sync_service_pb2.ListAlertsRequest(
            hub_project=self._hub_project, exclude_acknowledged=exclude_acknowledged
        )

        def load(page_token: str) -> sync_service_pb2.ListAlertsResponse:
            request.page_token = page_token
            return self._sync.ListAlerts(request, timeout=UNARY_SECONDS_MAX)

        for page in self._pages(load):
            yield from map(codec.alert_from_proto, page.alerts)

    def acknowledge_alert(self, alert_id: str) -> Alert:
        """Mark an alert as seen by a person; it opens again when it recurs. Idempotent."""
        request = sync_service_pb2.AcknowledgeAlertRequest(hub_project=self._hub_project, alert_id=alert_id)
        with self._translated():
            return codec.alert_from_proto(
                self._sync.AcknowledgeAlert(request, timeout=UNARY_SECONDS_MAX).alert
            )

    def get_hub_info(self) -> HubFacts:
        """Return version, generation and limits of the hub."""
        with self._translated():
            return hub_facts_from_proto(
                self._hub.GetHubInfo(hub_service_pb2.GetHubInfoRequest(), timeout=UNARY_SECONDS_MAX)
            )
