"""How a command follows events by their positions: a watch that goes on where it was whenever it breaks."""

import sys
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import grpc

from hub.cli.reconnecting import Reconnecting
from synchub.channel import Refusal, refusal_from_error

Event_co = TypeVar("Event_co", covariant=True)
Request = TypeVar("Request", bound="ResumableRequest")


class ResumableRequest(Protocol):
    """The fields of every Watch request that say where to begin."""

    after_position: int
    hub_generation: str


class PositionedAnswer(Protocol[Event_co]):
    """The fields of every answer of a watch that has positions."""

    @property
    def events(self) -> Iterable[Event_co]:
        """Events, ascending by position; maybe none."""

    @property
    def progress_position(self) -> int:
        """Everything up to here was considered."""

    @property
    def hub_generation(self) -> str:
        """The generation that the position is from."""


class PositionTail(Generic[Request, Event_co]):
    """A watch that is begun anew, where it was, whenever it breaks."""

    def __init__(
        self,
        watch: Callable[[Request], Iterable[PositionedAnswer[Event_co]]],
        request: Request,
        *,
        show: Callable[[Event_co], None],
        hub: str,
    ) -> None:
        """Bind the call and what shows an event; the request is moved on with each answer."""
        self._watch = watch
        self._request = request
        self._show = show
        self._reconnecting = Reconnecting(hub)

    def follow(self) -> None:
        """Show events until the process ends, or the hub refuses what does not pass by itself."""
        while True:
            try:
                self._follow_once()
                refusal = Refusal(grpc.StatusCode.UNAVAILABLE, "the hub ended the watch")
            except grpc.RpcError as error:
                refusal = refusal_from_error(error)
            self._go_on_after(refusal)

    def _follow_once(self) -> None:
        for answer in self._watch(self._request):
            self._reconnecting.answered()
            for event in answer.events:
                self._show(event)
            self._request.after_position = answer.progress_position
            self._request.hub_generation = answer.hub_generation

    def _go_on_after(self, refusal: Refusal) -> None:
        """Wait before the next try, or end the process where there is no sense in one."""
        if refusal.reason == "GENERATION_CHANGED":
            self._request.after_position = int(refusal.metadata.get("lowestPosition", "0"))
            self._request.hub_generation = refusal.metadata.get("hubGeneration", "")
            text = f"the hub lost a part of its events; going on after {self._request.after_position}"
            print(f"synchub: {text}, some may come again", file=sys.stderr)
            return
        self._reconnecting.wait_after(refusal)
