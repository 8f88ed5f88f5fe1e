"""From where a watcher may go on: positions hold within the life of a store that gave them."""

from collections.abc import Sequence
from dataclasses import dataclass

from hub.core.errors import GenerationChanged, InvalidRequest, PositionAhead, Violation
from hub.core.values import HubGeneration


@dataclass(frozen=True, slots=True)
class GenerationStart:
    """A generation of the store, and the head position of a hub project at which it began."""

    hub_generation: HubGeneration
    head_position: int


def check_resume(
    generations: Sequence[GenerationStart],
    *,
    hub_generation: str,
    after_position: int,
    head_position: int,
) -> None:
    """Check that a resume after this position holds.

    ``generations`` are all of the store, oldest first, the last one in force. A position holds if it
    is not above the head at which any generation later than its own began.

    Raises: InvalidRequest for a position above 0 without a generation; GenerationChanged with the
    lowest of these heads (0 for a generation that the store does not know); PositionAhead.
    """
    if after_position == 0:
        return
    if not hub_generation:
        sentence = "is empty; a position above 0 needs the generation that it was received under"
        raise InvalidRequest([Violation("hub_generation", sentence)])
    current = generations[-1].hub_generation
    names = [each.hub_generation for each in generations]
    if hub_generation not in names:
        raise GenerationChanged(current, 0)
    later = generations[names.index(HubGeneration(hub_generation)) + 1 :]
    lowest = min((each.head_position for each in later), default=after_position)
    if after_position > lowest:
        raise GenerationChanged(current, lowest)
    if after_position > head_position:
        raise PositionAhead(after_position, head_position)
