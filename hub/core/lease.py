"""Who may act on a resource: what each lease call does to its tenures.

Pure decisions on (resource, request, now): each returns the resource as it is afterwards, or raises the
refusal, and then nothing has changed. Maintenance itself is decided in ``core.maintenance``; the values
are in ``core.tenure``.
"""

from dataclasses import replace

from hub.core.errors import LimitReached
from hub.core.lease_errors import (
    LeaseExpired,
    LeaseFenced,
    LeaseHeld,
    LeaseMissing,
    LeaseSuperseded,
    ResourceUnderMaintenance,
)
from hub.core.tenure import (
    AbortReason,
    Claim,
    Credential,
    Granted,
    Holder,
    Resource,
    Tenure,
    TenureEnd,
    TenureState,
    with_tenure,
)
from synchub.contract import SEQUENCE_MAX

# --- tenures --------------------------------------------------------------------------------------


def open_tenure(
    resource: Resource, claim: Claim, *, now_nanos: int, past_nonces_max: int, is_maintenance: bool = False
) -> Granted:
    """Open a new tenure; the one before is over and its nonce never opens another.

    Raises: LimitReached where tokens or epochs are used up.
    """
    tenure = Tenure(
        resource=resource.name,
        holder=claim.holder,
        fencing_token=_next_number(
            resource.fencing_token, resource.floor.fencing_token, limit="fencing_token"
        ),
        epoch=_next_number(resource.epoch, resource.floor.epoch, limit="epoch")
        if is_maintenance
        else resource.epoch,
        ttl_nanos=claim.ttl_nanos,
        acquire_nanos=now_nanos,
        renew_nanos=now_nanos,
        expire_nanos=now_nanos + claim.ttl_nanos,
        nonce_hash=claim.nonce_hash,
        labels=claim.labels,
        is_maintenance=is_maintenance,
    )
    opened = replace(
        resource,
        fencing_token=tenure.fencing_token,
        epoch=tenure.epoch,
        past_nonce_hashes=_with_past_nonce(resource, past_nonces_max),
    )
    if is_maintenance:
        return Granted(
            replace(opened, maintenance=tenure, maintenance_token=tenure.fencing_token), tenure, False
        )
    return Granted(replace(opened, lease=tenure), tenure, False)


def decide_expiry(resource: Resource, now_nanos: int) -> Resource:
    """Note the end of what expired, so that no clock revives it; the same where nothing did."""
    for tenure in (resource.lease, resource.maintenance):
        if tenure is not None and tenure.end is None and now_nanos >= tenure.expire_nanos:
            ended = replace(tenure, end=TenureEnd(TenureState.EXPIRED, tenure.expire_nanos))
            resource = with_tenure(resource, ended)
    return resource


def refuse_under_maintenance(resource: Resource, now_nanos: int) -> None:
    """Return where no maintenance lives.

    Raises: ResourceUnderMaintenance.
    """
    tenure = resource.maintenance
    if tenure is not None and tenure is resource.current and tenure.is_live(now_nanos):
        raise ResourceUnderMaintenance(
            resource.name, tenure.holder.name, expire_nanos=tenure.expire_nanos, now_nanos=now_nanos
        )


def refuse_ended_nonce(resource: Resource, nonce_hash: bytes, *, now_nanos: int) -> None:
    """Return where a nonce has not opened a tenure that ended: a delayed copy of a request opens nothing.

    Raises: LeaseSuperseded.
    """
    tenures = filter(None, (resource.lease, resource.maintenance))
    is_of_ended = any(
        tenure.nonce_hash == nonce_hash and not (tenure is resource.current and tenure.is_live(now_nanos))
        for tenure in tenures
    )
    if is_of_ended or nonce_hash in resource.past_nonce_hashes:
        raise LeaseSuperseded(resource.name, 0, "the nonce of an ended tenure")


def current_tenure(resource: Resource, credential: Credential) -> Tenure:
    """Return the tenure that a credential proves, lease or maintenance, which may have expired.

    Raises, the first that holds: LeaseFenced, LeaseMissing, LeaseSuperseded.
    """
    tenure = tenure_of_token(resource, credential.fencing_token)
    is_proven = (
        tenure.holder.runtime_id == credential.runtime_id
        and tenure.holder.holder_id == credential.holder_id
        and tenure.nonce_hash == credential.nonce_hash
    )
    if not is_proven:
        raise LeaseSuperseded(resource.name, credential.fencing_token)
    return tenure


def tenure_of_token(resource: Resource, fencing_token: int) -> Tenure:
    """Return the tenure of a token, where it is the current one; it may have expired.

    Raises, the first that holds: LeaseFenced, LeaseMissing, LeaseSuperseded.
    """
    if fencing_token < resource.maintenance_token:
        raise LeaseFenced(resource.name, fencing_token, resource.maintenance_token)
    tenure = resource.current
    if tenure is None or (tenure.end is not None and tenure.end.state is not TenureState.EXPIRED):
        raise LeaseMissing(resource.name, fencing_token)
    if tenure.fencing_token != fencing_token:
        raise LeaseSuperseded(resource.name, fencing_token)
    return tenure


def refuse_expired(tenure: Tenure, now_nanos: int) -> None:
    """Return where a tenure is live.

    Raises: LeaseExpired.
    """
    if not tenure.is_live(now_nanos):
        raise LeaseExpired(tenure.resource, tenure.fencing_token, tenure.expire_nanos)


# --- the calls ------------------------------------------------------------------------------------


def decide_acquire(
    resource: Resource, claim: Claim, *, now_nanos: int, may_open: bool, past_nonces_max: int
) -> Granted:
    """Decide AcquireLease; ``may_open`` is False where others wait: then only the live holder passes.

    Raises: ResourceUnderMaintenance, LeaseSuperseded, LeaseHeld, LimitReached.
    """
    refuse_under_maintenance(resource, now_nanos)
    refuse_ended_nonce(resource, claim.nonce_hash, now_nanos=now_nanos)
    tenure = resource.current
    if tenure is not None and tenure.is_live(now_nanos):
        if not tenure.holder.is_same(claim.holder):
            raise _held(tenure, now_nanos)
        if tenure.nonce_hash is None or tenure.nonce_hash == claim.nonce_hash:
            own = replace(
                tenure.renewed(now_nanos, ttl_nanos=claim.ttl_nanos),
                holder=claim.holder,
                labels=claim.labels,
                nonce_hash=claim.nonce_hash,
            )
            return Granted(with_tenure(resource, own), own, True)
    elif not may_open:
        raise LeaseHeld(resource.name, "", expire_nanos=None, now_nanos=now_nanos)
    return open_tenure(resource, claim, now_nanos=now_nanos, past_nonces_max=past_nonces_max)


def decide_takeover(
    resource: Resource, claim: Claim, *, now_nanos: int, may_open: bool, past_nonces_max: int
) -> Granted:
    """Decide TakeoverLease: a new tenure only where the last one expired.

    Raises: ResourceUnderMaintenance, LeaseMissing, LeaseSuperseded, LeaseHeld, LimitReached.
    """
    refuse_under_maintenance(resource, now_nanos)
    tenure = resource.current
    state = None if tenure is None or tenure.is_maintenance else tenure.state(now_nanos)
    if tenure is None or state not in (TenureState.LIVE, TenureState.UNCLAIMED, TenureState.EXPIRED):
        raise LeaseMissing(resource.name, 0)
    refuse_ended_nonce(resource, claim.nonce_hash, now_nanos=now_nanos)
    if state is not TenureState.EXPIRED:
        raise _held(tenure, now_nanos)
    if not may_open:
        raise LeaseHeld(resource.name, "", expire_nanos=None, now_nanos=now_nanos)
    return open_tenure(resource, claim, now_nanos=now_nanos, past_nonces_max=past_nonces_max)


def decide_renew(
    resource: Resource, credential: Credential, *, now_nanos: int, ttl_nanos: int | None
) -> Granted:
    """Decide RenewLease: the deadline is from now on; None keeps the TTL.

    Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired; ResourceUnderMaintenance for the
    credential of a maintenance.
    """
    tenure = _proven_lease(resource, credential, now_nanos=now_nanos)
    refuse_expired(tenure, now_nanos)
    renewed = tenure.renewed(now_nanos, ttl_nanos=ttl_nanos)
    return Granted(with_tenure(resource, renewed), renewed, True)


def decide_release(resource: Resource, credential: Credential, *, now_nanos: int) -> Resource:
    """Decide ReleaseLease: free, also where it expired and nobody took it.

    Raises: LeaseFenced, LeaseMissing, LeaseSuperseded; ResourceUnderMaintenance for the credential of a
    maintenance.
    """
    tenure = _proven_lease(resource, credential, now_nanos=now_nanos)
    end = TenureEnd(TenureState.RELEASED, min(now_nanos, tenure.expire_nanos))
    return with_tenure(resource, replace(tenure, end=end))


def decide_give_back(resource: Resource, granted: Tenure, *, now_nanos: int) -> Resource:
    """Release a grant that could not be delivered; the same where anything happened to it since.

    A caller that asks again under the same nonce has renewed it: then it is not given back.
    """
    tenure = resource.current
    if tenure is None or tenure != granted or not tenure.is_live(now_nanos):
        return resource
    return with_tenure(resource, replace(tenure, end=TenureEnd(TenureState.RELEASED, now_nanos)))


def decide_transfer(
    resource: Resource,
    credential: Credential,
    *,
    now_nanos: int,
    next_holder: Holder,
    ttl_nanos: int | None,
    past_nonces_max: int,
) -> Granted:
    """Decide TransferLease: the next holder has it under the next token, without a nonce.

    Raises: LeaseFenced, ResourceUnderMaintenance, LeaseMissing, LeaseSuperseded, LeaseExpired,
    LimitReached.
    """
    if credential.fencing_token >= resource.maintenance_token:
        refuse_under_maintenance(resource, now_nanos)
    tenure = _proven_lease(resource, credential, now_nanos=now_nanos)
    refuse_expired(tenure, now_nanos)
    claim = Claim(next_holder, b"", tenure.ttl_nanos if ttl_nanos is None else ttl_nanos)
    opened = open_tenure(resource, claim, now_nanos=now_nanos, past_nonces_max=past_nonces_max)
    unclaimed = replace(opened.tenure, nonce_hash=None)
    return Granted(with_tenure(opened.resource, unclaimed), unclaimed, False)


def decide_abort(
    resource: Resource, now_nanos: int, *, fencing_token: int | None, reason: AbortReason
) -> Granted:
    """Decide AbortLease of the live tenure, where a token is given only of that one.

    Raises: LeaseFenced, ResourceUnderMaintenance, LeaseMissing, LeaseSuperseded, LeaseExpired.
    """
    if fencing_token is None or fencing_token >= resource.maintenance_token:
        refuse_under_maintenance(resource, now_nanos)
    last = resource.current
    shown = (0 if last is None else last.fencing_token) if fencing_token is None else fencing_token
    tenure = tenure_of_token(resource, shown)
    if tenure.is_maintenance:
        raise LeaseMissing(resource.name, shown)
    refuse_expired(tenure, now_nanos)
    if tenure.abort_reason is not AbortReason.EXTERNAL:
        tenure = replace(tenure, abort_reason=reason)
    return Granted(with_tenure(resource, tenure), tenure, True)


def decide_check(
    resource: Resource, fencing_token: int, *, now_nanos: int, nonce_hash: bytes | None
) -> Tenure:
    """Decide CheckLease: return the tenure where the token is current, lease or maintenance.

    Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired.
    """
    tenure = tenure_of_token(resource, fencing_token)
    if tenure.nonce_hash is None or nonce_hash not in (None, tenure.nonce_hash):
        raise LeaseSuperseded(resource.name, fencing_token)
    refuse_expired(tenure, now_nanos)
    return tenure


def _proven_lease(resource: Resource, credential: Credential, *, now_nanos: int) -> Tenure:
    """Return the lease that a credential proves; a maintenance has calls of its own."""
    tenure = current_tenure(resource, credential)
    if tenure.is_maintenance:
        refuse_under_maintenance(resource, now_nanos)
        raise LeaseMissing(resource.name, credential.fencing_token)
    return tenure


def _held(tenure: Tenure, now_nanos: int) -> LeaseHeld:
    return LeaseHeld(
        tenure.resource, tenure.holder.name, expire_nanos=tenure.expire_nanos, now_nanos=now_nanos
    )


def _with_past_nonce(resource: Resource, past_nonces_max: int) -> tuple[bytes, ...]:
    """Return the nonces to remember once the current tenure is over."""
    past = resource.past_nonce_hashes
    if resource.current is not None and resource.current.nonce_hash is not None:
        past = (*past, resource.current.nonce_hash)
    return past[max(0, len(past) - past_nonces_max) :]


def _next_number(last: int, floor: int, *, limit: str) -> int:
    """Return the number after the larger of the two; nothing wraps."""
    highest = max(last, floor)
    if highest >= SEQUENCE_MAX:
        raise LimitReached(limit, SEQUENCE_MAX)
    return highest + 1
