"""What a call to the hub can fail with."""

from dataclasses import dataclass

from runtime_agent.core.errors import RuntimeAgentError
from runtime_agent.core.refusals import RefusalAction, decide_refusal
from synchub.channel import HubAddress, Refusal, explain


@dataclass(eq=False)
class HubCallError(RuntimeAgentError):
    """The hub refused a call or a stream, or could not be reached.

    Decide on ``reason`` (bare, as in ``ErrorInfo``; "" where no hub answered). ``is_in_band``: it was
    said in a response of the stream, so that it may answer the oldest unanswered request.
    """

    refusal: Refusal
    addresses: tuple[HubAddress, ...] = ()
    is_in_band: bool = False

    @property
    def reason(self) -> str:
        """The bare reason; "" where the error is the connection's."""
        return self.refusal.reason

    @property
    def action(self) -> RefusalAction:
        """What the agent does about it."""
        refusal = self.refusal
        return decide_refusal(
            reason=refusal.reason,
            code=refusal.code.name,
            is_in_band=self.is_in_band,
            project_id=refusal.metadata.get("projectId", ""),
            limit=refusal.metadata.get("limit", ""),
            violated_fields=[violation.field for violation in refusal.violations],
        )

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        return explain(self.refusal, self.addresses)
