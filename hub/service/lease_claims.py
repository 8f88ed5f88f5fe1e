"""Which call asked last for a claim: a grant whose call is gone is kept for a later one.

A client whose connection broke asks again under the same nonce, often before the hub has noticed that the
first call is gone. What the later call is told must stay true. One event loop uses this module.
"""

from dataclasses import dataclass

from hub.core.tenure import Claim
from hub.service.lease_queue import QueueKey

ClaimKey = tuple[QueueKey, str, str, bytes]


@dataclass(slots=True)
class _UnderWay:
    """The calls of one claim that are under way."""

    call_count: int = 0
    newest_number: int = 0


class ClaimCalls:
    """The calls that are under way, by what they claim."""

    def __init__(self) -> None:
        """Begin with none."""
        self._under_way: dict[ClaimKey, _UnderWay] = {}

    def begin(self, key: QueueKey, claim: Claim) -> tuple[ClaimKey, int]:
        """Note a call, and return what names it; ``end`` must follow."""
        holder = claim.holder
        claim_key = (key, holder.runtime_id, holder.holder_id, claim.nonce_hash)
        calls = self._under_way.setdefault(claim_key, _UnderWay())
        calls.call_count += 1
        calls.newest_number += 1
        return claim_key, calls.newest_number

    def is_newest(self, call: tuple[ClaimKey, int]) -> bool:
        """Whether nobody asked for the same claim since a call that is under way began."""
        claim_key, number = call
        return self._under_way[claim_key].newest_number == number

    def end(self, call: tuple[ClaimKey, int]) -> None:
        """Forget a call."""
        claim_key, _ = call
        calls = self._under_way[claim_key]
        calls.call_count -= 1
        if not calls.call_count:
            del self._under_way[claim_key]
