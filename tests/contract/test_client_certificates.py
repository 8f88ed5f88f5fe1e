"""Client certificates: who is whom by them, what they may not be used for, and tokens beside them."""

import datetime
import json
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import pytest

from hub.core.limits import Limits
from synchub.channel import Refusal
from synchub.v1.alert_pb2 import AlertReason
from synchub.v1.hub_service_pb2 import GetHubInfoRequest
from synchub.v1.hub_service_pb2_grpc import HubServiceStub
from synchub.v1.sync_service_pb2 import (
    BindProjectRequest,
    GetRunRequest,
    ListAlertsRequest,
    ListRunsRequest,
)
from synchub.v1.sync_service_pb2_grpc import SyncServiceStub
from tests.contract.conftest import settings_in
from tests.contract.conversation import refusal_of
from tests.contract.hub_in_thread import HubInThread
from tests.contract.pushing import events, push
from tests.contract.secured import BOUND_RUNTIME, Bearer, make_tokens
from tests.contract.tls import Authority, CertificateFolder, Issued, spiffe, trusting, with_tls

SECONDS_MAX: Final = 20.0
LIMITS: Final = Limits(certificate_check_seconds=0.05, alert_flush_seconds=0.05)
RUNTIME: Final = "runtime-1"
PROJECT: Final = "one-bound"
"""A project of the hub project ``one``."""
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CertifiedHub:
    """A hub that asks for client certificates, and has tokens of two hub projects too."""

    hub: HubInThread
    authority: Authority
    clients: Authority
    certificates: CertificateFolder
    bearers: Mapping[str, Bearer]

    @contextmanager
    def showing(self, issued: Issued | None) -> Iterator[grpc.Channel]:
        with trusting(self.hub.address, self.authority, shown=issued) as channel:
            yield channel

    def bearing(self, name: str) -> Metadata:
        """What the bearer of a token sends."""
        return (("authorization", f"Bearer {self.bearers[name].bearer_token}"),)

    def refusal(self, issued: Issued | None, metadata: Metadata = ()) -> Refusal:
        """What a simple question is refused with."""
        with self.showing(issued) as channel:
            ask = HubServiceStub(channel).GetHubInfo
            return refusal_of(lambda: ask(GetHubInfoRequest(), timeout=SECONDS_MAX, metadata=metadata))

    def is_let_in(self, issued: Issued, metadata: Metadata = ()) -> bool:
        with self.showing(issued) as channel:
            try:
                HubServiceStub(channel).GetHubInfo(
                    GetHubInfoRequest(), timeout=SECONDS_MAX, metadata=metadata
                )
            except grpc.RpcError:
                return False
            return True

    def mismatches(self, hub_project: str) -> int:
        """How often the hub project's alerts say that somebody claimed to be somebody else."""
        with self.showing(self.clients.client()) as channel:
            alerts = SyncServiceStub(channel).ListAlerts(
                ListAlertsRequest(), timeout=SECONDS_MAX, metadata=self.bearing(f"{hub_project}/admin")
            )
        reason = AlertReason.ALERT_REASON_IDENTITY_MISMATCH
        return sum(alert.seen_count for alert in alerts.alerts if alert.reason == reason)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CertifiedHub]:
    folder = tmp_path_factory.mktemp("hub")
    settings = settings_in(folder, LIMITS)
    authority, clients, certificates = Authority("hub"), Authority("clients"), CertificateFolder(folder)
    certificates.put(authority.server())
    certificates.put_client_ca(clients)
    bearers = make_tokens(settings.database, limits=LIMITS)
    with HubInThread(with_tls(settings, certificates)) as hub:
        started = CertifiedHub(hub, authority, clients, certificates, bearers)
        with started.showing(clients.client()) as channel:
            SyncServiceStub(channel).BindProject(
                BindProjectRequest(project_id=PROJECT), metadata=started.bearing("one/operator")
            )
        yield started


@pytest.fixture
def certificate(certified: CertifiedHub) -> Issued:
    """The certificate of a runtime of the hub project ``one``."""
    return certified.clients.client(spiffe("one", RUNTIME))


def push_as(
    channel: grpc.Channel,
    run_id: str,
    *,
    hub_project: str = "",
    project_id: str = PROJECT,
    runtime_id: str = RUNTIME,
) -> int:
    """Push an event and return the run's cursor."""
    response = push(
        SyncServiceStub(channel),
        hub_project,
        project_id=project_id,
        run_id=run_id,
        runtime_id=runtime_id,
        batch=events(1, 1),
    )
    return response.cursor


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def test_a_runtime_is_who_its_certificate_says(certified: CertifiedHub, certificate: Issued) -> None:
    with certified.showing(certificate) as channel:
        assert push_as(channel, "by-certificate") == 1
        assert push_as(channel, "by-certificate-2", hub_project="one") == 1
        run = SyncServiceStub(channel).GetRun(GetRunRequest(project_id=PROJECT, run_id="by-certificate"))
    assert run.run.home_runtime_id == RUNTIME


def test_ids_of_a_certificate_may_be_of_any_script(certified: CertifiedHub) -> None:
    issued = certified.clients.client(spiffe("one", "l%C3%A4ufer%20%2F1"))
    with certified.showing(issued) as channel:
        assert push_as(channel, "any-script", runtime_id="läufer /1") == 1


@pytest.mark.parametrize("shown", ["nothing", "another authority's", "one that is over", "the hub's own"])
def test_who_shows_no_right_certificate_does_not_get_as_far_as_a_call(
    certified: CertifiedHub, shown: str
) -> None:
    uri = spiffe("one", RUNTIME)
    issued = {
        "nothing": None,
        "another authority's": Authority("clients").client(uri),
        "one that is over": certified.clients.client(uri, age=datetime.timedelta(days=2)),
        "the hub's own": certified.authority.client(uri),
    }[shown]
    refusal = certified.refusal(issued, certified.bearing("one/admin"))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "")


def test_the_http_port_asks_nobody_for_a_certificate(certified: CertifiedHub) -> None:
    context = ssl.create_default_context(cadata=certified.authority.pem.decode())
    url = f"https://{certified.hub.http_address}/healthz"
    with urllib.request.urlopen(url, timeout=SECONDS_MAX, context=context) as answer:
        assert json.load(answer)["status"] == "ok"


@pytest.mark.parametrize(
    "uris",
    [
        (spiffe("one", RUNTIME, trust_domain="another.org"),),
        (spiffe("one", RUNTIME, trust_domain="example.org.another.org"),),
        (spiffe("one", RUNTIME), spiffe("one", "runtime-2")),
        (spiffe("one", RUNTIME), "https://example.org"),
        ("https://example.org/hub-project/one/runtime/runtime-1",),
        ("spiffe://example.org/hub-project/one",),
        (f"{spiffe('one', RUNTIME)}/more",),
        (f"{spiffe('one', RUNTIME)}?more",),
        (spiffe("one", "%FF"),),
        (spiffe("one", "%00"),),
        (spiffe("one", "%20"),),
        (spiffe("one", "x" * 257),),
    ],
)
def test_a_certificate_with_another_name_is_none(certified: CertifiedHub, uris: tuple[str, ...]) -> None:
    refusal = certified.refusal(certified.clients.client(*uris))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_INVALID")


def test_a_certificate_without_a_name_names_nobody(certified: CertifiedHub) -> None:
    nameless = certified.clients.client()
    refusal = certified.refusal(nameless)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, "CREDENTIAL_MISSING")
    for name in ("one/runtime", "one/reader", "two/operator", "two/admin"):
        assert certified.is_let_in(nameless, certified.bearing(name))


@pytest.mark.parametrize(
    ("hub_project", "runtime_id", "field"),
    [
        ("two", RUNTIME, "hub_project"),
        ("three", RUNTIME, "hub_project"),
        ("one", "runtime-2", "runtime_id"),
        ("", "runtime-2", "runtime_id"),
    ],
)
def test_who_says_to_be_somebody_else_is_refused_and_alerted_and_nothing_is_stored(
    certified: CertifiedHub, certificate: Issued, *, hub_project: str, runtime_id: str, field: str
) -> None:
    before = {name: certified.mismatches(name) for name in ("one", "two")}
    run_id = f"mismatch-{hub_project}-{runtime_id}"
    with certified.showing(certificate) as channel:
        refusal = refusal_of(lambda: push_as(channel, run_id, hub_project=hub_project, runtime_id=runtime_id))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "IDENTITY_MISMATCH")
        assert refusal.metadata["field"] == field
        stub = SyncServiceStub(channel)
        missing = refusal_of(lambda: stub.GetRun(GetRunRequest(project_id=PROJECT, run_id=run_id)))
        assert missing.reason == "NOT_FOUND"
    wait_until(lambda: certified.mismatches("one") == before["one"] + 1)
    assert certified.mismatches("two") == before["two"]


def test_a_certificate_binds_no_project_where_there_are_several_hub_projects(
    certified: CertifiedHub, certificate: Issued
) -> None:
    with certified.showing(certificate) as channel:
        refusal = refusal_of(lambda: push_as(channel, "r", project_id="new"))
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
        assert refusal.metadata["projectId"] == "new"
        runs = SyncServiceStub(channel).ListRuns(ListRunsRequest(project_id="new"))
    assert list(runs.runs) == []


def test_a_certificate_of_another_hub_project_sees_nothing_of_this_one(
    certified: CertifiedHub, certificate: Issued
) -> None:
    with certified.showing(certificate) as channel:
        push_as(channel, "unseen")
    with certified.showing(certified.clients.client(spiffe("two", RUNTIME))) as channel:
        stub = SyncServiceStub(channel)
        assert list(stub.ListRuns(ListRunsRequest()).runs) == []
        refusal = refusal_of(lambda: stub.GetRun(GetRunRequest(project_id=PROJECT, run_id="unseen")))
    assert refusal.reason == "NOT_FOUND"


def test_a_token_beside_a_certificate_says_what_its_bearer_may(
    certified: CertifiedHub, certificate: Issued
) -> None:
    bind = BindProjectRequest(project_id="one-beside")
    with certified.showing(certificate) as channel:
        stub = SyncServiceStub(channel)
        alone = refusal_of(lambda: stub.BindProject(bind))
        assert (alone.code, alone.reason) == (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED")
        assert stub.BindProject(bind, metadata=certified.bearing("one/operator")).project.project_id


@pytest.mark.parametrize("name", ["two/runtime", "two/admin"])
def test_a_token_of_another_hub_project_beside_a_certificate_is_refused_and_alerted(
    certified: CertifiedHub, certificate: Issued, name: str
) -> None:
    before = certified.mismatches("two")
    refusal = certified.refusal(certificate, certified.bearing(name))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "IDENTITY_MISMATCH")
    wait_until(lambda: certified.mismatches("two") == before + 1)


def test_a_token_of_another_runtime_beside_a_certificate_is_refused(
    certified: CertifiedHub, certificate: Issued
) -> None:
    metadata = certified.bearing("one/bound")
    refusal = certified.refusal(certificate, metadata)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.PERMISSION_DENIED, "IDENTITY_MISMATCH")
    assert certified.is_let_in(certified.clients.client(spiffe("one", BOUND_RUNTIME)), metadata)


@pytest.mark.parametrize(
    ("name", "reason"), [("one/expired", "CREDENTIAL_EXPIRED"), ("one/revoked", "CREDENTIAL_REVOKED")]
)
def test_a_token_that_is_over_is_not_made_good_by_a_certificate(
    certified: CertifiedHub, certificate: Issued, name: str, reason: str
) -> None:
    refusal = certified.refusal(certificate, certified.bearing(name))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAUTHENTICATED, reason)


def test_new_authorities_of_clients_count_for_new_connections(tmp_path: Path) -> None:
    old, new, authority = Authority("old"), Authority("new"), Authority("hub")
    certificates = CertificateFolder(tmp_path)
    certificates.put(authority.server())
    certificates.put_client_ca(old)
    with HubInThread(with_tls(settings_in(tmp_path, LIMITS), certificates)) as hub:
        certified = CertifiedHub(hub, authority, old, certificates, {})
        by_old, by_new = old.client(spiffe("one", "r")), new.client(spiffe("one", "r"))
        assert certified.is_let_in(by_old)
        assert not certified.is_let_in(by_new)
        with certified.showing(by_old) as channel:
            assert push_as(channel, "r", runtime_id="r") == 1
            certificates.put_client_ca(old, new)
            wait_until(lambda: certified.is_let_in(by_new))
            assert certified.is_let_in(by_old)
            certificates.put_client_ca(new)
            wait_until(lambda: not certified.is_let_in(by_old))
            assert certified.is_let_in(by_new)
            assert push_as(channel, "r", runtime_id="r") == 1
