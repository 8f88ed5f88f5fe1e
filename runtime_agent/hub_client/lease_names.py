"""The names of resources that the client's own kinds of lease live on.

They begin with ``synchub.``, and ``HubClient.lease`` refuses such names, so that no program meets them by
accident. Behind the first ``/`` stands one name, whole and unchanged, whatever is in it: ``a/b`` is never
the ``b`` of an ``a``.

| resource | held by |
| -- | -- |
| ``synchub.turn/TOPIC`` | the owner of the turn on the topic |
| ``synchub.turn-query/QUERY`` | the one topic that the query holds |
| ``synchub.process/ROLE`` | the process that has the role |
| ``synchub.process-owner/OWNER`` | the one role that the owner has |

The right side of the second and fourth is a holder made from both names (``bound_holder_id``): for
another topic, or another role, it is another holder, and the hub refuses it.
"""

from hashlib import sha256
from typing import Final

from runtime_agent.core.errors import UsageError
from synchub.contract import IDENTIFIER_BYTES_MAX, identifier_fault, length_prefixed

RESERVED_PREFIX: Final = "synchub."
"""Resources that begin so are the client's own."""

_TURN: Final = RESERVED_PREFIX + "turn/"
_TURN_QUERY: Final = RESERVED_PREFIX + "turn-query/"
_PROCESS: Final = RESERVED_PREFIX + "process/"
_PROCESS_OWNER: Final = RESERVED_PREFIX + "process-owner/"


def turn_resource(topic: str) -> str:
    """Return the resource of turns on a topic; maintenance of it keeps everybody out. Raises: UsageError."""
    return _named(_TURN, "topic", name=topic)


def turn_query_resource(query_id: str) -> str:
    """Return the resource that a query has one topic by. Raises: UsageError."""
    return _named(_TURN_QUERY, "query id", name=query_id)


def process_resource(role: str) -> str:
    """Return the resource of a role. Raises: UsageError."""
    return _named(_PROCESS, "role", name=role)


def process_owner_resource(owner: str) -> str:
    """Return the resource that an owner has one role by. Raises: UsageError."""
    return _named(_PROCESS_OWNER, "owner", name=owner)


def bound_holder_id(holder_id: str, resource: str) -> str:
    """Return a holder that stands for this holder together with this resource, and for no other pair."""
    parts = (holder_id.encode(), resource.encode())
    return sha256(b"".join(map(length_prefixed, parts))).hexdigest()


def refuse_reserved(resource: str) -> None:
    """Return where the name is a program's own to use. Raises: UsageError."""
    if resource.startswith(RESERVED_PREFIX):
        raise UsageError(
            f"resource {resource!r} begins with {RESERVED_PREFIX!r}, which is kept for turns and processes"
        )


def _named(prefix: str, what: str, *, name: str) -> str:
    fault = identifier_fault(name, IDENTIFIER_BYTES_MAX - len(prefix))
    if fault is not None:
        raise UsageError(f"the {what} {fault}")
    return prefix + name
