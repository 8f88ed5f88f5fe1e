"""Taking a resource out of use: a maintenance is a tenure that fences every one from before.

Pure decisions, like those of ``core.lease``.
"""

from dataclasses import replace

from hub.core.lease import (
    current_tenure,
    open_tenure,
    refuse_ended_nonce,
    refuse_expired,
    refuse_under_maintenance,
)
from hub.core.lease_errors import LeaseMissing, LeaseSuperseded
from hub.core.tenure import Claim, Credential, Granted, Resource, Tenure, TenureEnd, TenureState, with_tenure


def decide_begin(resource: Resource, claim: Claim, *, now_nanos: int, past_nonces_max: int) -> Granted:
    """Decide BeginMaintenance: the next epoch and token; whatever tenure there is ends.

    The same runtime, holder and nonce again gives the same one, with a deadline from now on.

    Raises: ResourceUnderMaintenance, LeaseSuperseded, LimitReached.
    """
    own = resource.current
    if (
        own is not None
        and own.is_maintenance
        and own.is_live(now_nanos)
        and own.holder.is_same(claim.holder)
        and own.nonce_hash == claim.nonce_hash
    ):
        renewed = replace(own.renewed(now_nanos, ttl_nanos=claim.ttl_nanos), holder=claim.holder)
        return Granted(with_tenure(resource, renewed), renewed, True)
    refuse_under_maintenance(resource, now_nanos)
    refuse_ended_nonce(resource, claim.nonce_hash, now_nanos=now_nanos)
    if own is not None and own.nonce_hash == claim.nonce_hash:
        # A nonce opens one tenure: this one opened the lease that is about to end.
        raise LeaseSuperseded(resource.name, 0, "the nonce of an ended tenure")
    opened = open_tenure(
        resource, claim, now_nanos=now_nanos, past_nonces_max=past_nonces_max, is_maintenance=True
    )
    lease = opened.resource.lease
    if lease is None or (lease.end is not None and lease.end.state is not TenureState.EXPIRED):
        return opened
    end = TenureEnd(TenureState.FENCED, min(now_nanos, lease.expire_nanos))
    return opened._replace(resource=with_tenure(opened.resource, replace(lease, end=end)))


def decide_renew_maintenance(
    resource: Resource, credential: Credential, *, now_nanos: int, ttl_nanos: int | None
) -> Granted:
    """Decide RenewMaintenance: the deadline is from now on; None keeps the TTL.

    Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired.
    """
    tenure = _proven_maintenance(resource, credential)
    refuse_expired(tenure, now_nanos)
    renewed = tenure.renewed(now_nanos, ttl_nanos=ttl_nanos)
    return Granted(with_tenure(resource, renewed), renewed, True)


def decide_finish(
    resource: Resource, credential: Credential, *, now_nanos: int, is_state_deleted: bool
) -> Resource:
    """Decide FinishMaintenance: free again, also where it expired; token and epoch stay.

    ``is_state_deleted`` forgets the labels and flags of the last lease.

    Raises: LeaseFenced, LeaseMissing, LeaseSuperseded.
    """
    tenure = _proven_maintenance(resource, credential)
    end = TenureEnd(TenureState.RELEASED, min(now_nanos, tenure.expire_nanos))
    finished = with_tenure(resource, replace(tenure, end=end))
    if is_state_deleted and finished.lease is not None:
        finished = with_tenure(finished, replace(finished.lease, labels={}, abort_reason=None))
    return finished


def _proven_maintenance(resource: Resource, credential: Credential) -> Tenure:
    """Return the maintenance that a credential proves; a lease has calls of its own."""
    tenure = current_tenure(resource, credential)
    if not tenure.is_maintenance:
        raise LeaseMissing(resource.name, credential.fencing_token)
    return tenure
