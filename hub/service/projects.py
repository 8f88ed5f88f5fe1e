"""Which project belongs to which hub project, bound and released by operators."""

from hub.core.errors import InvalidRequest, NotFound, Violation
from hub.core.identity_errors import project_taken
from hub.core.values import Caller, Project, ProjectId
from hub.service.rates import ProjectGuesses
from hub.service.writer import AsyncWriter
from hub.store.contract import WriteTransaction


class Projects:
    """The use cases of an operator who binds projects."""

    def __init__(self, writer: AsyncWriter, guesses: ProjectGuesses) -> None:
        """Bind the writer, and what counts guesses of other people's projects."""
        self._writer = writer
        self._guesses = guesses

    async def bind(self, caller: Caller, project_id: ProjectId) -> Project:
        """Bind a project to the caller's hub project; idempotent.

        Raises: PermissionDenied where another hub project has it; RateLimited where that was told too often.
        """

        def command(transaction: WriteTransaction, now_nanos: int) -> Project:
            owner = transaction.project_owner(project_id)
            self._guesses.check(caller.hub_project, [owner])
            if owner is None:
                transaction.bind_project(caller.hub_project, project_id, now_nanos=now_nanos)
            elif owner != caller.hub_project:
                raise project_taken(project_id)
            return _existing(transaction, project_id)

        return await self._writer.call(command, hub_project=caller.hub_project)

    async def release(self, caller: Caller, project_id: ProjectId) -> None:
        """Take back the binding of a project that has no run.

        Raises: NotFound where the hub project does not have it; InvalidRequest where it has runs.
        """

        def command(transaction: WriteTransaction, _now_nanos: int) -> None:
            if transaction.project_owner(project_id) != caller.hub_project:
                raise NotFound("project", {"projectId": project_id})
            project = _existing(transaction, project_id)
            if project.run_count:
                sentence = f"has {project.run_count} runs; a project with events is bound for good"
                raise InvalidRequest([Violation("project_id", sentence)], {"projectId": project_id})
            transaction.release_project(project_id)

        await self._writer.call(command, hub_project=caller.hub_project)


def _existing(transaction: WriteTransaction, project_id: ProjectId) -> Project:
    project = transaction.project(project_id)
    if project is None:
        raise NotFound("project", {"projectId": project_id})
    return project
