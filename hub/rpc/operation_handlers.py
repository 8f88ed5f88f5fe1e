"""What operators do to the store: each handler checks its request, asks a use case, tells how far it is."""

import asyncio
from contextlib import aclosing
from typing import Final, TypeVar

import grpc.aio

from hub.core.backup import BackupPhase, BackupProgress, file_name_fault
from hub.core.limits import Limits
from hub.core.values import ProjectId
from hub.core.verify import Finding, VerifyProgress
from hub.rpc.identity import hub_caller_of, refuse_mismatch
from hub.rpc.open_streams import OpenStreams
from hub.rpc.requests import RequestCheck
from hub.rpc.streams import WatchStream, write_answer
from hub.service.backup import Backups
from hub.service.verify import Verifications
from synchub.v1 import hub_service_pb2 as messages

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Request, Response]

PROGRESS_SECONDS: Final = 0.2
"""How often it is told how far something is, where nothing else is to be told."""

_PHASES: Final = {
    BackupPhase.COPY: messages.BackupHubResponse.PHASE_COPY,
    BackupPhase.VERIFY: messages.BackupHubResponse.PHASE_VERIFY,
    BackupPhase.DONE: messages.BackupHubResponse.PHASE_DONE,
}


class OperationHandlers:
    """Serves BackupHub and VerifyEvents."""

    def __init__(
        self, *, backups: Backups, verifications: Verifications, open_streams: OpenStreams, limits: Limits
    ) -> None:
        """Bind the use cases."""
        self._backups = backups
        self._verifications = verifications
        self._open_streams = open_streams
        self._limits = limits

    async def backup_hub(
        self,
        request: messages.BackupHubRequest,
        context: Context[messages.BackupHubRequest, messages.BackupHubResponse],
    ) -> None:
        """Take a backup of the whole store."""
        check = RequestCheck(self._limits)
        if request.file_name:
            fault = file_name_fault(request.file_name)
            if fault is not None:
                check.add("file_name", fault)
        check.refuse_violations()
        file_name = self._backups.name_for(request.file_name)
        pace = _Pace()
        with WatchStream(self._open_streams, method="BackupHub"):
            async with aclosing(self._backups.take(file_name)) as steps:
                async for progress in steps:
                    if pace.is_due(must_tell=progress.phase is BackupPhase.DONE):
                        response = _backup_to_proto(progress, file_name)
                        await write_answer(context, response, limits=self._limits)

    async def verify_events(
        self,
        request: messages.VerifyEventsRequest,
        context: Context[messages.VerifyEventsRequest, messages.VerifyEventsResponse],
    ) -> None:
        """Compute every hash of a hub project or project anew."""
        check = RequestCheck(self._limits)
        caller = hub_caller_of(context, request.hub_project, check=check)
        check.optional_identifier("project_id", request.project_id)
        check.refuse_violations()
        refuse_mismatch(caller, project_id=request.project_id)
        project_id = ProjectId(request.project_id) if request.project_id else None
        pace = _Pace()
        progress = VerifyProgress()
        with WatchStream(self._open_streams, method="VerifyEvents"):
            async with aclosing(self._verifications.events(caller, project_id)) as pages:
                async for progress in pages:
                    if pace.is_due(must_tell=bool(progress.findings)):
                        response = _verification_to_proto(progress, is_done=False)
                        await write_answer(context, response, limits=self._limits)
            response = _verification_to_proto(progress.with_findings(()), is_done=True)
            await write_answer(context, response, limits=self._limits)


class _Pace:
    """Says when it is time to tell how far something is."""

    def __init__(self) -> None:
        self._next_seconds = 0.0

    def is_due(self, *, must_tell: bool) -> bool:
        """Whether to tell it now."""
        now_seconds = asyncio.get_running_loop().time()
        if not must_tell and now_seconds < self._next_seconds:
            return False
        self._next_seconds = now_seconds + PROGRESS_SECONDS
        return True


def _backup_to_proto(progress: BackupProgress, file_name: str) -> messages.BackupHubResponse:
    return messages.BackupHubResponse(
        phase=_PHASES[progress.phase],
        done_count=progress.done_count,
        total_count=progress.total_count,
        file_name=file_name,
        size_bytes=progress.size_bytes,
    )


def _verification_to_proto(progress: VerifyProgress, *, is_done: bool) -> messages.VerifyEventsResponse:
    return messages.VerifyEventsResponse(
        event_count=progress.event_count,
        total_count=max(progress.total_count, progress.event_count),
        run_count=progress.run_count,
        findings=map(_finding_to_proto, progress.findings),
        is_done=is_done,
    )


def _finding_to_proto(finding: Finding) -> messages.VerifyFinding:
    return messages.VerifyFinding(
        project_id=finding.project_id,
        run_id=finding.run_id,
        sequence=finding.sequence,
        problem=finding.problem,
    )
