"""Turns: one query at a time on a topic.

::

    with hub.turn("orders", query_id="q-17", origin="web") as turn:
        for step in plan:
            turn.check()
            if turn.abort_requested:
                break
            do(step, fencing_token=turn.fencing_token)

- Another owner's claim is refused while the turn lives (``LeaseHeld``), or waits with ``wait_seconds``.
- The same owner may claim again with a new query: that is a new tenure with a new token, the abort is
  cleared, and what the old query still renews or releases fails.
- A query id holds one topic only (``QueryHasTopic``).
- Under maintenance every claim is refused, the live owner's too (``ResourceUnderMaintenance``).
- ``HubClient.abort_turn`` asks the holder to stop, for an internal or external reason.

Origin and query id stand in the labels of the lease. See ``lease_names.py`` for its resources.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from runtime_agent.core.lease_errors import LeaseError, LeaseHeld, LeaseLost, LeaseNotHeld, QueryHasTopic
from runtime_agent.hub_client.async_lease import AwaitedHeld
from runtime_agent.hub_client.lease import BlockingHeld
from runtime_agent.hub_client.lease_core import LeasePlace
from runtime_agent.hub_client.lease_kinds import LeaseCore
from runtime_agent.hub_client.lease_names import bound_holder_id, turn_query_resource, turn_resource
from runtime_agent.hub_client.lease_pair import PairCore
from runtime_agent.hub_client.lease_values import LeaseState, LeaseView, LeaseWish

ORIGIN_LABEL: Final = "origin"
"""The label that says where a query came from."""
QUERY_LABEL: Final = "query_id"
"""The label that says which query has the turn."""


class TurnCore(PairCore):
    """The lease on a topic, and the one that binds the query to it."""

    def __init__(
        self,
        place: LeasePlace,
        wish: LeaseWish,
        *,
        topic: str,
        query_id: str,
        origin: str,
        wait_seconds: float,
        margin_seconds: float,
    ) -> None:
        """``wish`` says who wants the turn and for how long; its resource and labels are completed here.

        Raises: UsageError where topic or query id can be no name.
        """
        self.topic = topic
        self.query_id = query_id
        labels = {**wish.labels, ORIGIN_LABEL: origin, QUERY_LABEL: query_id}
        on_topic = replace(wish, resource=turn_resource(topic), labels=labels)
        on_query = replace(
            on_topic,
            resource=turn_query_resource(query_id),
            holder_id=bound_holder_id(wish.holder_id, on_topic.resource),
            holder_display_name=topic,
        )
        super().__init__(
            LeaseCore(place, on_topic, wait_seconds=wait_seconds, margin_seconds=margin_seconds),
            LeaseCore(place, on_query, margin_seconds=margin_seconds),
            second_refusal=self._refused_query,
        )

    def _refused_query(self, held: LeaseHeld) -> LeaseError:
        return QueryHasTopic(held.resource, self.query_id, topic=held.holder_display_name)


class Turn(BlockingHeld):
    """One query's turn on a topic; made by ``HubClient.turn``."""

    def __init__(self, core: TurnCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self.topic = core.topic
        self.query_id = core.query_id


class AsyncTurn(AwaitedHeld):
    """The same for event loops; made by ``AsyncHubClient.turn``."""

    def __init__(self, core: TurnCore, on_lost: Callable[[LeaseLost], None] | None) -> None:
        super().__init__(core, on_lost)
        self.topic = core.topic
        self.query_id = core.query_id


def token_of_turn(lease: LeaseView | None, *, resource: str, query_id: str) -> int:
    """Return the token of a live turn, to abort that one and no later one.

    ``query_id`` "" is whichever query has it. Raises: LeaseNotHeld where that query does not have it.
    """
    if lease is None or lease.state is not LeaseState.LIVE:
        raise LeaseNotHeld(resource)
    if query_id and lease.labels.get(QUERY_LABEL) != query_id:
        raise LeaseNotHeld(resource)
    return lease.fencing_token
