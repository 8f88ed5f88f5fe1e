"""Short ways to resources, claims and credentials, for tests that decide on values."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Final, ParamSpec

import pytest

from hub.core.errors import Refusal
from hub.core.lease import (
    decide_abort,
    decide_acquire,
    decide_check,
    decide_release,
    decide_renew,
    decide_takeover,
    decide_transfer,
)
from hub.core.lease_errors import LeaseHeld
from hub.core.maintenance import decide_begin
from hub.core.tenure import (
    AbortReason,
    Claim,
    Credential,
    Floor,
    Granted,
    Holder,
    Resource,
    Tenure,
    hash_of_nonce,
    unused_resource,
)
from hub.core.values import HolderId, ResourceName, RuntimeId

Arguments = ParamSpec("Arguments")

NAME: Final = ResourceName("resource")
NOW: Final = 1_000_000
TTL: Final = 10_000
EXPIRE: Final = NOW + TTL
NONCES_MAX: Final = 8


def free(*, token: int = 0, epoch: int = 0) -> Resource:
    """A resource of which nothing is stored, at this floor."""
    return unused_resource(NAME, Floor(token, epoch))


def holder(name: str, display_name: str = "") -> Holder:
    return Holder(RuntimeId("runtime"), HolderId(name), display_name)


def claim(
    name: str = "a", nonce: str = "a1", *, ttl: int = TTL, labels: Mapping[str, str] | None = None
) -> Claim:
    return Claim(holder(name), hash_of_nonce(nonce), ttl, labels or {})


def acquire(
    resource: Resource, claimed: Claim | None = None, now: int = NOW, *, may_open: bool = True
) -> Granted:
    return decide_acquire(
        resource, claimed or claim(), now_nanos=now, may_open=may_open, past_nonces_max=NONCES_MAX
    )


def begin(resource: Resource, claimed: Claim, now: int = NOW) -> Granted:
    return decide_begin(resource, claimed, now_nanos=now, past_nonces_max=NONCES_MAX)


def held(claimed: Claim | None = None, *, token: int = 0, epoch: int = 0) -> Resource:
    """A resource that was free at this floor and that somebody acquired at ``NOW``."""
    return acquire(free(token=token, epoch=epoch), claimed).resource


def lease_of(resource: Resource) -> Tenure:
    assert resource.lease is not None
    return resource.lease


def maintenance_of(resource: Resource) -> Tenure:
    assert resource.maintenance is not None
    return resource.maintenance


def credential(
    name: str = "a", nonce: str = "a1", *, token: int = 1, runtime_id: str = "runtime"
) -> Credential:
    return Credential(NAME, RuntimeId(runtime_id), HolderId(name), token, hash_of_nonce(nonce))


def with_counters(resource: Resource, *, token: int, epoch: int) -> Resource:
    """The resource as if it had come as far as this."""
    return replace(resource, fencing_token=token, epoch=epoch)


def refusal_of(
    decide: Callable[Arguments, object], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> tuple[type[Refusal], dict[str, object]]:
    """What a decision is refused with, as class and facts, so that whole refusals are compared."""
    with pytest.raises(Refusal) as caught:
        decide(*args, **kwargs)
    return facts_of(caught.value)


def facts_of(refusal: Refusal) -> tuple[type[Refusal], dict[str, object]]:
    return type(refusal), asdict(refusal)  # type: ignore[call-overload]  # every leaf is a dataclass


def takeover(resource: Resource, claimed: Claim, now: int, *, may_open: bool = True) -> Granted:
    return decide_takeover(resource, claimed, now_nanos=now, may_open=may_open, past_nonces_max=NONCES_MAX)


def transfer(
    resource: Resource, shown: Credential, now: int, *, to: str = "b", ttl: int | None = None
) -> Granted:
    return decide_transfer(
        resource, shown, now_nanos=now, next_holder=holder(to), ttl_nanos=ttl, past_nonces_max=NONCES_MAX
    )


def renew(resource: Resource, shown: Credential, now: int, *, ttl: int | None = None) -> Granted:
    return decide_renew(resource, shown, now_nanos=now, ttl_nanos=ttl)


def check(resource: Resource, token: int, now: int, *, nonce: str | None = None) -> Tenure:
    return decide_check(
        resource, token, now_nanos=now, nonce_hash=None if nonce is None else hash_of_nonce(nonce)
    )


def abort(
    resource: Resource, now: int, *, token: int | None = None, reason: AbortReason = AbortReason.INTERNAL
) -> Granted:
    return decide_abort(resource, now, fencing_token=token, reason=reason)


def released() -> Resource:
    return decide_release(held(), credential(), now_nanos=NOW + 1)


def held_by(name: str, expire: int, now: int) -> tuple[type[Refusal], dict[str, object]]:
    return facts_of(LeaseHeld(NAME, name, expire_nanos=expire, now_nanos=now))
