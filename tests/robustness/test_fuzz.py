"""Whatever bytes somebody sends: every call is answered or refused for a reason, and the hub goes on.

``--long`` makes a million calls.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final

import grpc.aio
import pytest
import structlog
from grpc_health.v1.health_pb2 import HealthCheckResponse

from hub.app import running_hub
from hub.config import HubSettings
from hub.core.limits import Limits
from tests.contract.conftest import settings_in
from tests.contract.every_method import HEALTH_CHECK, METHODS, OPEN_METHODS
from tests.contract.secured import Bearer, make_tokens
from tests.robustness.fuzz_calls import Attack, Findings, Inputs, Metadata, as_they_are
from tests.robustness.stored_chains import event_count, faults_of_store

CALLS: Final = 5_000
CALLS_LONG: Final = 500_000
LONG_SECONDS_MAX: Final = 3_600
FAULTS_SHOWN: Final = 10
LIMITS: Final = Limits(
    half_close_wait_seconds=0.05,
    first_message_seconds_max=0.2,
    lease_wait_seconds_max=0.2,
    hub_project_mismatches_per_minute=1_000_000,
)
OPTIONS: Final = (("grpc.max_send_message_length", -1),)
"""Of the client: what is too large is for the hub to refuse."""
NOT_REACHED_MAX: Final = 12
"""Methods that may end well not even once in a short run: what they need is seldom there."""
FILES_OF_A_HUB: Final = frozenset(("hub.db", "hub.db-wal", "hub.db-shm", "hub.db.lock", "backups"))
REACHED: Final = frozenset(
    (
        "OK",
        "INVALID_ARGUMENT INVALID_REQUEST",
        "NOT_FOUND NOT_FOUND",
        "ALREADY_EXISTS IDEMPOTENCY_CONFLICT",
        "FAILED_PRECONDITION LEASE_HELD",
        "FAILED_PRECONDITION LEASE_MISSING",
        "FAILED_PRECONDITION STALE_LEASE",
        "FAILED_PRECONDITION RUNTIME_DUPLICATED",
        "OUT_OF_RANGE POSITION_AHEAD",
    )
)
"""How calls must have ended at least once: else what is sent does not get far enough."""
OUTCOMES_NOT_REACHED_MAX: Final = 3
"""Of these, what chance may leave out in a short run."""
REACHED_WITH_CREDENTIALS: Final = frozenset(
    (
        "UNAUTHENTICATED CREDENTIAL_MISSING",
        "UNAUTHENTICATED CREDENTIAL_INVALID",
        "UNAUTHENTICATED CREDENTIAL_EXPIRED",
        "UNAUTHENTICATED CREDENTIAL_REVOKED",
        "PERMISSION_DENIED IDENTITY_MISMATCH",
        "PERMISSION_DENIED PERMISSION_DENIED",
    )
)


@contextmanager
def watched_logs(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    """Give the list of what the hub, its loop and gRPC say of trouble; it is filled at the end."""
    troubles: list[str] = []
    with structlog.testing.capture_logs() as entries, caplog.at_level(logging.WARNING):
        yield troubles
    troubles += [str(each) for each in entries if each["log_level"] in ("error", "critical")]
    troubles += [f"{each.name}: {each.getMessage()}" for each in caplog.records]


async def attacked(settings: HubSettings, inputs: Inputs, *, count: int) -> Findings:
    """Make so many calls to a hub, the methods in turn; then it must still be well.

    Both are on one loop: gRPC does not work well with two of them in one process.
    """
    async with (
        running_hub(settings) as hub,
        grpc.aio.insecure_channel(hub.address, options=OPTIONS) as channel,
    ):
        attack = Attack(channel, inputs)
        await attack.run((*METHODS, *OPEN_METHODS), count=count)
        check = channel.unary_unary(HEALTH_CHECK.path, as_they_are, HealthCheckResponse.FromString)
        assert (await check(b"", timeout=10)).status == HealthCheckResponse.SERVING
        return attack.findings


@pytest.mark.timeout(LONG_SECONDS_MAX)
async def test_no_bytes_crash_the_hub_or_bring_about_an_unexplained_error(
    tmp_path: Path, rng: Random, caplog: pytest.LogCaptureFixture, long_run: bool
) -> None:
    (tmp_path / "backups").mkdir()
    settings = replace(settings_in(tmp_path, LIMITS), backup_folder=tmp_path / "backups")
    with watched_logs(caplog) as troubles:
        findings = await attacked(settings, Inputs(rng), count=CALLS_LONG if long_run else CALLS)
    assert not findings.faults, _shown(findings.faults)
    assert not troubles, _shown(troubles)
    assert faults_of_store(tmp_path / "hub.db") == []
    assert event_count(tmp_path / "hub.db") > 0
    unseen = REACHED - findings.outcomes()
    assert "OK" not in unseen
    assert len(unseen) <= (0 if long_run else OUTCOMES_NOT_REACHED_MAX), unseen
    not_reached = {method.name for method in (*METHODS, *OPEN_METHODS)} - findings.methods_that_ended("OK")
    assert len(not_reached) <= (0 if long_run else NOT_REACHED_MAX), not_reached
    assert _names_in(tmp_path) <= FILES_OF_A_HUB


@pytest.mark.timeout(LONG_SECONDS_MAX)
async def test_nor_do_they_with_any_credential_or_with_what_is_none(
    tmp_path: Path, rng: Random, caplog: pytest.LogCaptureFixture, long_run: bool
) -> None:
    bearers = make_tokens(tmp_path / "hub.db", limits=LIMITS)
    shown = [_bearing(bearer) for bearer in bearers.values()]
    inputs = Inputs(rng, credentials=[*shown, *_no_credentials(bearers["one/runtime"])])
    inputs.values.usual_texts["hub_project"] = ("", "", "one", "two")
    inputs.values.usual_texts["project_id"] = ("one-a", "one-b", "two-a", "other")
    count = CALLS_LONG if long_run else CALLS
    with watched_logs(caplog) as troubles:
        findings = await attacked(settings_in(tmp_path, LIMITS), inputs, count=count)
    assert not findings.faults, _shown(findings.faults)
    assert not troubles, _shown(troubles)
    assert faults_of_store(tmp_path / "hub.db") == []
    assert findings.outcomes() >= REACHED_WITH_CREDENTIALS


def _bearing(bearer: Bearer) -> Metadata:
    return (("authorization", f"Bearer {bearer.bearer_token}"),)


def _no_credentials(bearer: Bearer) -> Sequence[Metadata]:
    """What comes near a credential, and is none."""
    token = bearer.bearer_token
    right = ("authorization", f"Bearer {token}")
    return (
        (),
        (right, right),
        (("authorization", token),),
        (("authorization", f"Basic {token}"),),
        (("authorization", f"Bearer {token[:-1]}"),),
        (("authorization", f"Bearer {token[:-1]}0"), ("x-request-id", "%n{}" * 30)),
        (("authorization", ""),),
        (("authorization-bin", token.encode()),),
        (right, ("grpc-trace-bin", b"\0\xff"), ("traceparent", "00-nonsense")),
    )


def _names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _shown(faults: Sequence[str]) -> str:
    return f"{len(faults)} faults:\n" + "\n".join(faults[:FAULTS_SHOWN])
