"""What a claimed outbox message shows of itself, whether its program blocks or runs on an event loop."""

from runtime_agent.hub_client.journal_values import OutboxMessage, OutboxOutcome
from runtime_agent.hub_client.outbox_core import HeldMessage, OutboxCore


class Outgoing:
    """The part of a claimed message that neither blocks nor awaits."""

    def __init__(self, core: OutboxCore, held: HeldMessage) -> None:
        self._core = core
        self._held = held

    @property
    def message(self) -> OutboxMessage:
        """All that the hub said of it."""
        return self._held.claimed.message

    @property
    def outbox_id(self) -> str:
        """Its id, the same at each try: what a receiver knows a repetition by."""
        return self.message.outbox_id

    @property
    def event_id(self) -> str:
        """The event that it is about; "" where none was named."""
        return self.message.event_id

    @property
    def payload(self) -> bytes:
        """The payload."""
        return self.message.payload

    @property
    def attempt_count(self) -> int:
        """Which try this is, from 1 on."""
        return self.message.attempt_count

    @property
    def seconds_left(self) -> float:
        """How long nobody else gets it at least; 0 once another may have it."""
        return self._core.seconds_left(self._held)

    @property
    def outcome(self) -> OutboxOutcome | None:
        """What the hub said to the answer; None before there is one, and where no hub was heard."""
        return self._held.outcome

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.outbox_id!r}, try {self.attempt_count}>"
