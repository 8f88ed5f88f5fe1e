"""Which holders are asked to stop, in memory, so that every answer to them can say so.

It follows the commits: what is told here is durable. One event loop uses this module.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from hub.core.tenure import AbortReason, Resource, Tenure
from hub.core.values import HubProject, ResourceName, RuntimeId
from hub.service.readers import Readers
from hub.store.contract import Changes

Key = TypeVar("Key")


class AbortNotice(NamedTuple):
    """A lease whose holder is asked to stop, and why."""

    resource: ResourceName
    fencing_token: int
    reason: AbortReason


Listener = Callable[[AbortNotice], None]
"""Is told of an abort, on the loop, after its COMMIT; must return at once."""


class LeaseAborts:
    """The aborts that stand; ``announce`` is to be called on the loop after each COMMIT."""

    def __init__(self) -> None:
        """Begin with none; ``load`` takes up those of an earlier life of the hub."""
        self._by_resource: dict[tuple[HubProject, ResourceName], tuple[RuntimeId, AbortNotice]] = {}
        self._by_runtime: dict[tuple[HubProject, RuntimeId], dict[ResourceName, AbortNotice]] = {}
        self._of_runtimes: dict[tuple[HubProject, RuntimeId], set[Listener]] = {}
        self._of_resources: dict[tuple[HubProject, ResourceName], set[Listener]] = {}

    async def load(self, readers: Readers) -> None:
        """Take up what stands in the store; to be called before the hub takes calls."""
        for hub_project, tenure in await readers.call(
            lambda transaction: transaction.leases.tenures_to_abort()
        ):
            self._note(hub_project, tenure.resource, tenure=tenure)

    def announce(self, changes: Changes) -> None:
        """Follow a commit, and tell who listens of aborts that are new."""
        for (hub_project, name), resource in changes.resources.items():
            self._note(hub_project, name, tenure=_to_be_aborted(resource))

    def of_runtime(self, hub_project: HubProject, runtime_id: RuntimeId) -> Sequence[AbortNotice]:
        """Return the aborts of leases of a runtime that stand."""
        notices = self._by_runtime.get((hub_project, runtime_id))
        return () if notices is None else tuple(notices.values())

    def listen_to_runtime(
        self, hub_project: HubProject, runtime_id: RuntimeId, *, listener: Listener
    ) -> Callable[[], None]:
        """Tell a listener of new aborts of leases of a runtime, until what is returned is called."""
        return _listen(self._of_runtimes, (hub_project, runtime_id), listener=listener)

    def listen_to_resource(
        self, hub_project: HubProject, name: ResourceName, *, listener: Listener
    ) -> Callable[[], None]:
        """Tell a listener of new aborts of a resource's lease, until what is returned is called."""
        return _listen(self._of_resources, (hub_project, name), listener=listener)

    def _note(self, hub_project: HubProject, name: ResourceName, *, tenure: Tenure | None) -> None:
        """Note that a resource's lease is to be aborted, or that none is."""
        before = self._by_resource.pop((hub_project, name), None)
        if before is not None:
            runtime_id, _ = before
            notices = self._by_runtime[hub_project, runtime_id]
            del notices[name]
            if not notices:
                del self._by_runtime[hub_project, runtime_id]
        if tenure is None or tenure.abort_reason is None:
            return
        notice = AbortNotice(name, tenure.fencing_token, tenure.abort_reason)
        runtime_id = tenure.holder.runtime_id
        self._by_resource[hub_project, name] = (runtime_id, notice)
        self._by_runtime.setdefault((hub_project, runtime_id), {})[name] = notice
        if before is None or before != (runtime_id, notice):
            for listener in (
                *self._of_runtimes.get((hub_project, runtime_id), ()),
                *self._of_resources.get((hub_project, name), ()),
            ):
                listener(notice)


def _to_be_aborted(resource: Resource) -> Tenure | None:
    """Return the lease that did not end and whose holder is asked to stop."""
    tenure = resource.lease
    if tenure is None or tenure is not resource.current or tenure.end is not None:
        return None
    return tenure if tenure.abort_reason is not None else None


def _listen(listeners: dict[Key, set[Listener]], key: Key, *, listener: Listener) -> Callable[[], None]:
    listeners.setdefault(key, set()).add(listener)

    def stop() -> None:
        of_key = listeners.get(key)
        if of_key is not None:
            of_key.discard(listener)
            if not of_key:
                del listeners[key]

    return stop
