"""From where a watch goes on after its stream broke: pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class WatchPlace:
    """Up to where a watcher was told everything, and under which generation of the hub.

    The two belong together: a position means something within the generation that gave it, and both move
    with each answer, so that nothing is skipped and nothing comes twice. ``from_now`` holds until the first
    answer: from then on there is a position, even if it is 0.
    """

    hub_generation: str = ""
    position: int = 0
    from_now: bool = False

    def heard(self, *, hub_generation: str, progress_position: int) -> None:
        """Note an answer."""
        self.hub_generation = hub_generation
        self.position = progress_position
        self.from_now = False
