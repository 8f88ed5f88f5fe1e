"""Who calls: the ``Caller`` that every use case takes first.

Without credentials everybody is anonymous, and the request names its hub project.
"""

from typing import TypeVar

import grpc.aio

from hub.core.values import Caller, HubProject, Role
from hub.rpc.requests import RequestCheck

Request = TypeVar("Request")
Response = TypeVar("Response")


def caller_of(
    context: grpc.aio.ServicerContext[Request, Response], hub_project: str, *, check: RequestCheck
) -> Caller:
    """Return the caller of a request that names this hub project.

    A hub project that is empty or no identifier is noted in ``check``; refuse its violations before
    the caller is used.
    """
    check.identifier("hub_project", hub_project)
    return Caller(
        hub_project=HubProject(hub_project),
        runtime_id=None,
        role=Role.ANONYMOUS,
        peer=context.peer(),
        credential_name="",
    )
