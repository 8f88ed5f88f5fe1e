"""Leases and maintenance as use cases: one command for the writer each, before ingest.

A call loads the resource, has ``core`` decide, and stores what differs, in the group's transaction; a
refusal changes nothing. What is told is durable: refusals too are answered after the COMMIT, which keeps
hub time from going back behind an expiry that was told. One event loop uses this module.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Final

from hub.core.errors import LimitReached, Refusal
from hub.core.lease import (
    decide_abort,
    decide_acquire,
    decide_give_back,
    decide_release,
    decide_renew,
    decide_takeover,
    decide_transfer,
)
from hub.core.lease_errors import LeaseHeld, LeaseSuperseded, ResourceUnderMaintenance
from hub.core.limits import Limits
from hub.core.maintenance import decide_begin, decide_finish, decide_renew_maintenance
from hub.core.receipt import LeaseAnswer, Receipt, Repeat, decide_repeat
from hub.core.tenure import AbortReason, Claim, Credential, Granted, Holder, Resource, Tenure
from hub.core.values import Caller, ResourceName
from hub.service.lease_claims import ClaimCalls, ClaimKey, Unheard
from hub.service.lease_queue import LeaseQueues, QueueKey, Waiter
from hub.service.writer import PART_BYTES, AsyncWriter
from hub.store.contract import WriteTransaction
from synchub.contract import NANOS_PER_SECOND

Decide = Callable[[Resource, int], Granted]
"""(resource, hub time) → what was granted; raises a Refusal."""

LOOK_AGAIN_SECONDS: Final = 10.0
"""A waiter looks at least so often: a commit whose outcome was unknown was not announced."""


class Leases:
    """The use cases that change leases."""

    def __init__(
        self, writer: AsyncWriter, *, queues: LeaseQueues, limits: Limits, now_nanos: Callable[[], int]
    ) -> None:
        """Bind the writer; ``now_nanos`` gives hub time."""
        self._writer = writer
        self._queues = queues
        self._limits = limits
        self._now_nanos = now_nanos
        self._claim_calls = ClaimCalls()
        self._background: set[asyncio.Task[None]] = set()

    async def settle(self) -> None:
        """Return once nothing is left that nobody heard of; at a stop, when no call comes any more."""
        while self._background:
            await asyncio.wait(tuple(self._background))

    # --- tenures that are opened ---

    async def acquire(
        self, caller: Caller, resource: ResourceName, *, claim: Claim, repeat: Repeat | None, wait_nanos: int
    ) -> LeaseAnswer:
        """Acquire a lease; with ``wait_nanos`` above 0, wait in the queue for so long.

        A grant whose caller is gone before it is known (the task is cancelled) is given back.

        Raises: LeaseHeld, ResourceUnderMaintenance, LeaseSuperseded (also where a later call under the
        same nonce took this one's place), IdempotencyConflict, LimitReached, and what the writer raises.
        """
        key = (caller.hub_project, resource)
        begin_nanos = self._now_nanos()
        if wait_nanos <= 0:
            return await self._acquire_once(caller, key, claim=claim, repeat=repeat, begin_nanos=begin_nanos)
        try:
            waiter = self._queues.join(key, claim, begin_nanos=begin_nanos)
        except LimitReached as full:
            with suppress(LeaseHeld):
                # Who need not wait needs no place: the live holder, and the repeat of a call.
                return await self._acquire_once(
                    caller, key, claim=claim, repeat=repeat, begin_nanos=begin_nanos
                )
            raise full from None
        try:
            return await self._acquire_in_turn(
                caller, key, claim=claim, repeat=repeat, waiter=waiter, end_nanos=begin_nanos + wait_nanos
            )
        finally:
            self._queues.leave(key, waiter)

    async def takeover(
        self, caller: Caller, resource: ResourceName, *, claim: Claim, repeat: Repeat | None
    ) -> LeaseAnswer:
        """Take over a lease that expired.

        Raises: ResourceUnderMaintenance, LeaseSuperseded, LeaseMissing, LeaseHeld, IdempotencyConflict,
        LimitReached, and what the writer raises.
        """
        may_open = self._queues.may_pass((caller.hub_project, resource), None)

        def decide(before: Resource, now_nanos: int) -> Granted:
            past_nonces_max = self._limits.lease_past_nonces_max
            return decide_takeover(
                before, claim, now_nanos=now_nanos, may_open=may_open, past_nonces_max=past_nonces_max
            )

        return await self._opened(caller, resource, claim=claim, decide=decide, repeat=repeat)

    async def begin_maintenance(
        self, caller: Caller, resource: ResourceName, *, claim: Claim, repeat: Repeat | None
    ) -> LeaseAnswer:
        """Begin a maintenance; the live tenure ends, and who waits stays queued.

        Raises: ResourceUnderMaintenance, LeaseSuperseded, IdempotencyConflict, LimitReached, and what the
        writer raises.
        """

        def decide(before: Resource, now_nanos: int) -> Granted:
            return decide_begin(
                before, claim, now_nanos=now_nanos, past_nonces_max=self._limits.lease_past_nonces_max
            )

        return await self._opened(caller, resource, claim=claim, decide=decide, repeat=repeat)

    # --- tenures that go on, or end ---

    async def renew(self, caller: Caller, credential: Credential, *, ttl_nanos: int | None) -> Tenure:
        """Renew a lease from now on; None keeps the TTL.

        Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired, ResourceUnderMaintenance, and
        what the writer raises.
        """
        answer = await self._changed(
            caller,
            credential.resource,
            decide=lambda before, now_nanos: decide_renew(
                before, credential, now_nanos=now_nanos, ttl_nanos=ttl_nanos
            ),
        )
        return answer.tenure

    async def renew_many(
        self, caller: Caller, renewals: Sequence[tuple[Credential, int | None]]
    ) -> list[Tenure | Refusal]:
        """Renew leases together, durably by one commit; each is renewed or refused by itself.

        Raises: what the writer raises.
        """

        def command(transaction: WriteTransaction, now_nanos: int) -> list[Tenure | Refusal]:
            outcomes: list[Tenure | Refusal] = []
            for credential, ttl_nanos in renewals:
                before = transaction.leases.resource(caller.hub_project, credential.resource)
                try:
                    granted = decide_renew(before, credential, now_nanos=now_nanos, ttl_nanos=ttl_nanos)
                except Refusal as refusal:
                    outcomes.append(refusal)
                else:
                    transaction.leases.save_resource(caller.hub_project, before, after=granted.resource)
                    outcomes.append(granted.tenure)
            return outcomes

        bytes_count = PART_BYTES * len(renewals)
        return await self._writer.call(command, bytes_count=bytes_count, hub_project=caller.hub_project)

    async def release(self, caller: Caller, credential: Credential, *, repeat: Repeat | None) -> LeaseAnswer:
        """Give a lease back.

        Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, ResourceUnderMaintenance, IdempotencyConflict,
        and what the writer raises.
        """

        def decide(before: Resource, now_nanos: int) -> Granted:
            return _ended(decide_release(before, credential, now_nanos=now_nanos), before)

        return await self._changed(caller, credential.resource, decide=decide, repeat=repeat)

    async def transfer(
        self,
        caller: Caller,
        credential: Credential,
        *,
        next_holder: Holder,
        ttl_nanos: int | None,
        repeat: Repeat | None,
    ) -> LeaseAnswer:
        """Hand a lease to the next holder, who has to acquire it.

        Raises: LeaseFenced, ResourceUnderMaintenance, LeaseMissing, LeaseSuperseded, LeaseExpired,
        IdempotencyConflict, LimitReached, and what the writer raises.
        """

        def decide(before: Resource, now_nanos: int) -> Granted:
            return decide_transfer(
                before,
                credential,
                now_nanos=now_nanos,
                next_holder=next_holder,
                ttl_nanos=ttl_nanos,
                past_nonces_max=self._limits.lease_past_nonces_max,
            )

        return await self._changed(caller, credential.resource, decide=decide, repeat=repeat)

    async def abort(
        self,
        caller: Caller,
        resource: ResourceName,
        *,
        fencing_token: int | None,
        reason: AbortReason,
        repeat: Repeat | None,
    ) -> LeaseAnswer:
        """Ask the holder to stop; None means whoever holds it.

        Raises: LeaseFenced, ResourceUnderMaintenance, LeaseMissing, LeaseSuperseded, LeaseExpired,
        IdempotencyConflict, and what the writer raises.
        """

        def decide(before: Resource, now_nanos: int) -> Granted:
            return decide_abort(before, now_nanos, fencing_token=fencing_token, reason=reason)

        return await self._changed(caller, resource, decide=decide, repeat=repeat)

    async def renew_maintenance(
        self, caller: Caller, credential: Credential, *, ttl_nanos: int | None
    ) -> Tenure:
        """Renew a maintenance from now on; None keeps the TTL.

        Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, LeaseExpired, and what the writer raises.
        """

        def decide(before: Resource, now_nanos: int) -> Granted:
            return decide_renew_maintenance(before, credential, now_nanos=now_nanos, ttl_nanos=ttl_nanos)

        return (await self._changed(caller, credential.resource, decide=decide)).tenure

    async def finish_maintenance(
        self, caller: Caller, credential: Credential, *, is_state_deleted: bool, repeat: Repeat | None
    ) -> LeaseAnswer:
        """Finish a maintenance.

        Raises: LeaseFenced, LeaseMissing, LeaseSuperseded, IdempotencyConflict, and what the writer
        raises.
        """

        def decide(before: Resource, now_nanos: int) -> Granted:
            after = decide_finish(before, credential, now_nanos=now_nanos, is_state_deleted=is_state_deleted)
            return _ended(after, before)

        return await self._changed(caller, credential.resource, decide=decide, repeat=repeat)

    # --- within ---

    async def _acquire_once(
        self,
        caller: Caller,
        key: QueueKey,
        *,
        claim: Claim,
        repeat: Repeat | None,
        begin_nanos: int,
        waiter: Waiter | None = None,
    ) -> LeaseAnswer:
        """Try once; whoever waits before this call is not passed."""
        may_open = self._queues.may_pass(key, waiter)

        def decide(before: Resource, now_nanos: int) -> Granted:
            past_nonces_max = self._limits.lease_past_nonces_max
            return decide_acquire(
                before, claim, now_nanos=now_nanos, may_open=may_open, past_nonces_max=past_nonces_max
            )

        return await self._opened(
            caller, key[1], claim=claim, decide=decide, repeat=repeat, begin_nanos=begin_nanos
        )

    async def _acquire_in_turn(
        self,
        caller: Caller,
        key: QueueKey,
        *,
        claim: Claim,
        repeat: Repeat | None,
        waiter: Waiter,
        end_nanos: int,
    ) -> LeaseAnswer:
        """Try at once, at each turn of the waiter's, and a last time when the wait is over."""
        is_first = not waiter.has_taken_place
        while True:
            is_last = self._now_nanos() >= end_nanos
            try:
                return await self._acquire_once(
                    caller,
                    key,
                    claim=claim,
                    repeat=repeat,
                    begin_nanos=waiter.begin_nanos,
                    waiter=waiter,
                )
            except (LeaseHeld, ResourceUnderMaintenance) as refusal:
                if is_last or (is_first and isinstance(refusal, ResourceUnderMaintenance)):
                    raise
                free_nanos = refusal.expire_nanos
            is_first = False
            await self._until_turn(key, waiter, end_nanos=end_nanos, free_nanos=free_nanos)
            if waiter.is_replaced:
                raise LeaseSuperseded(key[1], 0, "the place in the queue")

    async def _until_turn(
        self, key: QueueKey, waiter: Waiter, *, end_nanos: int, free_nanos: int | None
    ) -> None:
        """Wait until it may be the waiter's turn, or its time is over."""
        while not waiter.is_replaced:
            until_nanos = end_nanos
            if free_nanos is not None and self._queues.may_pass(key, waiter):
                until_nanos = min(end_nanos, free_nanos)
            seconds = (until_nanos - self._now_nanos()) / NANOS_PER_SECOND
            was_woken = await waiter.wait(min(seconds, LOOK_AGAIN_SECONDS))
            if was_woken or self._now_nanos() >= end_nanos or self._queues.may_pass(key, waiter):
                return

    async def _changed(
        self, caller: Caller, resource: ResourceName, *, decide: Decide, repeat: Repeat | None = None
    ) -> LeaseAnswer:
        command = self._command(caller, resource, decide=decide, repeat=repeat)
        return await self._writer.call(command, hub_project=caller.hub_project)

    def _command(
        self,
        caller: Caller,
        resource: ResourceName,
        *,
        decide: Decide,
        repeat: Repeat | None,
        begin_nanos: int | None = None,
    ) -> Callable[[WriteTransaction, int], LeaseAnswer]:
        """Return what the writer runs: answer from the receipt, or decide, store and keep a receipt."""
        hub_project = caller.hub_project
        queued_nanos = self._now_nanos() if begin_nanos is None else begin_nanos

        def command(transaction: WriteTransaction, now_nanos: int) -> LeaseAnswer:
            leases = transaction.leases
            if repeat is not None:
                name = caller.credential_key
                stored = leases.receipt(hub_project, name, request_id=repeat.request_id)
                replayed = decide_repeat(stored, repeat)
                if replayed is not None:
                    return replayed
            before = leases.resource(hub_project, resource)
            granted = decide(before, now_nanos)
            leases.save_resource(hub_project, before, after=granted.resource)
            answer = LeaseAnswer(
                granted.tenure, granted.is_renewed, waited_nanos=max(0, now_nanos - queued_nanos)
            )
            if repeat is not None:
                receipt, receipts_max = Receipt(repeat, answer), self._limits.receipts_max
                name = caller.credential_key
                leases.save_receipt(
                    hub_project, name, receipt=receipt, receipts_max=receipts_max, now_nanos=now_nanos
                )
            return answer

        return command

    async def _opened(
        self,
        caller: Caller,
        resource: ResourceName,
        *,
        claim: Claim,
        decide: Decide,
        repeat: Repeat | None,
        begin_nanos: int | None = None,
    ) -> LeaseAnswer:
        """Run a call that opens a tenure; where the caller is gone meanwhile, give it back."""
        command = self._command(caller, resource, decide=decide, repeat=repeat, begin_nanos=begin_nanos)
        claim_key = self._claim_calls.begin((caller.hub_project, resource), claim)
        try:
            future = await self._writer.submit(command, hub_project=caller.hub_project)
            try:
                answer = await asyncio.shield(future)
            except asyncio.CancelledError:
                self._in_background(self._end_lost(caller, claim_key, future=future, repeat=repeat))
                raise
        except Exception:
            await self._end_unheard(caller, claim_key)
            raise
        self._claim_calls.end(claim_key, is_heard=True)
        return answer

    async def _end_lost(
        self,
        caller: Caller,
        claim_key: ClaimKey,
        *,
        future: asyncio.Future[LeaseAnswer],
        repeat: Repeat | None,
    ) -> None:
        """End a call whose caller is gone, once it is known what it was granted."""
        try:
            with suppress(Refusal):  # then nothing was granted, as far as is known
                self._claim_calls.lose(claim_key, await future, repeat=repeat)
        finally:
            await self._end_unheard(caller, claim_key)

    async def _end_unheard(self, caller: Caller, claim_key: ClaimKey) -> None:
        """End a call that told nobody of a grant; give back what now nobody will ever hear of."""
        unheard = self._claim_calls.end(claim_key, is_heard=False)
        if unheard is not None:
            # No later call of the claim comes before this one: nothing is awaited between the two.
            with suppress(Refusal):  # then the store cannot be written, and the lease expires by itself
                await self._writer.call(_give_back_command(caller, unheard), hub_project=caller.hub_project)

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _give_back_command(caller: Caller, unheard: Unheard) -> Callable[[WriteTransaction, int], None]:
    """Return what releases a grant that nobody heard of; its receipts would promise it to a repeat."""
    granted = unheard.tenure

    def command(transaction: WriteTransaction, now_nanos: int) -> None:
        before = transaction.leases.resource(caller.hub_project, granted.resource)
        after = decide_give_back(before, granted, now_nanos=now_nanos)
        if after is before:
            return  # the grant stands, and a repeat is still told of it
        transaction.leases.save_resource(caller.hub_project, before, after=after)
        for repeat in unheard.repeats:
            transaction.leases.drop_receipt(
                caller.hub_project, caller.credential_key, request_id=repeat.request_id
            )

    return command


def _ended(after: Resource, before: Resource) -> Granted:
    """Return a resource with the tenure that was ended, the current one."""
    tenure = after.current
    assert tenure is not None, before.name
    return Granted(after, tenure, False)
