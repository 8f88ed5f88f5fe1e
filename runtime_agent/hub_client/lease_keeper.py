"""Keeps one tenure: a thread that renews it, and the one place that says whether it is still held.

The thread is a daemon's and needs nothing of the program: a program that blocks keeps its lease. One
that is frozen (stopped, swapped out, holding the interpreter's lock) does not, and hears of its loss when
it wakes up. When to renew and what an answer means is decided in ``core/lease.py``.
"""

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runtime_agent import limits
from runtime_agent.core.lease import (
    AbortReason,
    Grant,
    HeldTenure,
    LossReason,
    Over,
    Renew,
    RenewalTiming,
    Wait,
)
from runtime_agent.core.lease_errors import LeaseLost, LeaseNotHeld
from runtime_agent.hub_client.errors import HubCallError
from runtime_agent.hub_client.lease_channel import ClientClosed
from runtime_agent.hub_client.lease_values import OpenedTenure, RenewedTenure

_CLOCK_ID: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def suspension_counting_seconds() -> float:
    """Return seconds on a clock that goes on while the machine sleeps (macOS: its monotonic one does)."""
    return time.monotonic() if _CLOCK_ID is None else time.clock_gettime(_CLOCK_ID)


@dataclass(frozen=True, slots=True)
class LeaseSurroundings:
    """What leases are given: a clock that rises and counts suspension, in seconds, and chance in [0, 1)."""

    clock: Callable[[], float] = suspension_counting_seconds
    chance: Callable[[], float] = random.random


class Keeper:
    """Holds one tenure until it is lost or ended; ``start`` it once."""

    def __init__(
        self,
        opened: OpenedTenure,
        grant: Grant,
        *,
        timing: RenewalTiming,
        renew: Callable[[float], RenewedTenure],
        on_lost: Callable[[LeaseLost], None],
        surroundings: LeaseSurroundings,
    ) -> None:
        """``renew`` sends one renewal and gives it up after so many seconds; it raises HubCallError.

        ``on_lost`` is called once if the tenure is lost, from the thread that renews it.
        """
        self.opened = opened
        self._tenure = HeldTenure(grant, timing, chance=surroundings.chance)
        self._renew = renew
        self._on_lost = on_lost
        self._clock = surroundings.clock
        self._changed = threading.Condition()
        self._cause = ""
        self._abort_reason = opened.abort_reason
        self._thread = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    # --- for the program: local, and cheap ---

    @property
    def abort_reason(self) -> AbortReason | None:
        """Why its holder is asked to stop, as far as renewals told."""
        return self._abort_reason

    @property
    def seconds_left(self) -> float:
        """How long it is held at least; 0 where it is not."""
        with self._changed:
            now = self._clock()
            if self._tenure.is_ended or self._loss(now) is not None:
                return 0.0
            return self._tenure.deadline - now

    @property
    def loss(self) -> LeaseLost | None:
        """How it was lost; None while it is held, and where its holder ended it."""
        with self._changed:
            reason = self._loss(self._clock())
        return None if reason is None else self._lost(reason)

    def check(self) -> None:
        """Return where it is held. Raises: LeaseLost, LeaseNotHeld."""
        with self._changed:
            reason = self._loss(self._clock())
            is_ended = self._tenure.is_ended
        if reason is not None:
            raise self._lost(reason)
        if is_ended:
            raise LeaseNotHeld(self.opened.credential.resource)

    # --- for its holder ---

    def end(self) -> bool:
        """Renew no more; return whether it was held until now. Idempotent."""
        with self._changed:
            was_held = self._tenure.end(now=self._clock())
            self._changed.notify_all()
        return was_held

    def pause(self) -> float:
        """Send no renewals until ``resume``; return how long the tenure lasts without."""
        with self._changed:
            self._tenure.pause()
            return max(0.0, self._tenure.deadline - self._clock())

    def resume(self) -> None:
        """Renew at once."""
        with self._changed:
            self._tenure.resume(now=self._clock())
            self._changed.notify_all()

    # --- the thread ---

    def _keep(self) -> None:
        while isinstance(work := self._wait_for_work(), Renew):
            self._try_to_renew(work.timeout_seconds)
        if work.loss is not None:
            self._on_lost(self._lost(work.loss))

    def _wait_for_work(self) -> Renew | Over:
        with self._changed:
            while True:
                step = self._tenure.next_step(now=self._clock())
                if not isinstance(step, Wait):
                    return step
                # What this sleeps by does not count suspension, so it is cut into pieces.
                self._changed.wait(min(step.seconds, limits.LEASE_LOOK_SECONDS))

    def _try_to_renew(self, timeout_seconds: float) -> None:
        sent_at = self._clock()
        try:
            renewed = self._renew(timeout_seconds)
        except ClientClosed:
            with self._changed:
                self._tenure.lose(LossReason.CLIENT_CLOSED)
        except HubCallError as error:
            self._take_failure(error.reason, error.sentence)
        except Exception as error:  # noqa: BLE001 - whatever it was, the deadline decides and is told
            self._take_failure("", f"{type(error).__name__}: {error}")
        else:
            with self._changed:
                self._cause = ""
                self._abort_reason = renewed.abort_reason
                self._tenure.renewed(renewed.ttl_seconds, sent_at=sent_at, now=self._clock())

    def _take_failure(self, reason: str, cause: str) -> None:
        with self._changed:
            self._cause = cause
            self._tenure.not_renewed(reason, now=self._clock())

    def _loss(self, now: float) -> LossReason | None:
        """With the lock held; a deadline that is seen to have passed wakes the thread up."""
        reason = self._tenure.loss(now=now)
        if reason is LossReason.DEADLINE:
            self._changed.notify_all()
        return reason

    def _lost(self, reason: LossReason) -> LeaseLost:
        credential = self.opened.credential
        # What the hub said of the tenure is the reason; what it could not say is the cause.
        cause = self._cause if reason is LossReason.DEADLINE else ""
        return LeaseLost(credential.resource, credential.fencing_token, reason=reason, cause=cause)
