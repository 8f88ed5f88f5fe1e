"""``synchub prune``: payloads of old events go, and with them what is as old and has ended."""

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Final

import typer

from hub.cli.hub_calls import channel_to, message_to_json
from hub.cli.options import (
    DEFAULT_HUB,
    HubOption,
    HubProjectOption,
    JsonOption,
    checked_hub_project,
    no_hub_project,
)
from hub.cli.output import EXIT_USAGE, CommandFailed, failures_told, print_json
from hub.cli.progress import shown_progress
from hub.cli.spans import parse_span
from synchub.v1.hub_service_pb2 import PruneEventsRequest, PruneEventsResponse
from synchub.v1.hub_service_pb2_grpc import HubServiceStub

EXAMPLES = """Examples:

  synchub prune --older-than 90d --hub-project home --dry-run

  synchub prune --older-than 90d --hub-project home --project build --yes
"""

_KIBIBYTE: Final = 1024

Answers = Callable[[PruneEventsRequest], Iterator[PruneEventsResponse]]
"""Who prunes: a hub, or this command by itself."""


def prune(
    *,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="SPAN", help="How old, by the time of receipt, such as 90d."),
    ],
    project: Annotated[
        str,
        typer.Option(
            "--project", metavar="PROJECT", help="Only events of this project; leases and runtimes stay."
        ),
    ] = "",
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what would go, and change nothing.")
    ] = False,
    is_yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    db: Annotated[
        str,
        typer.Option(
            "--db",
            metavar="FILE",
            help="Do it to this store, which no hub serves now, instead of asking a hub.",
        ),
    ] = "",
    hub: HubOption = DEFAULT_HUB,
    hub_project: HubProjectOption = "",
    is_json: JsonOption = False,
) -> None:
    """Drop the payloads of old events for good; all else of an event stays, its hash too.

    Without --project also what is as old of the rest goes: leases that ended, stored answers of repeated
    requests, and what was heard of runtimes that are silent since. Runtimes, leases and readers go on
    meanwhile. Interrupted, what was done stays done: give it again. The file does not shrink: what is free
    in it is used for new events.
    """
    with failures_told():
        span = parse_span(older_than, flag="--older-than")
        if span is None:
            raise CommandFailed("--older-than is empty", hint="Such as 90d.", exit_code=EXIT_USAGE)
        if db and not hub_project:
            raise no_hub_project("no hub project is given")
        request = PruneEventsRequest(
            hub_project=checked_hub_project(hub_project),
            project_id=project,
            older_than=span,
            is_dry_run=is_dry_run,
        )
        if not (is_yes or is_dry_run or sys.stdin.isatty()):
            raise CommandFailed(
                "nothing was pruned: nobody is there to be asked",
                hint="Give --yes, or look first with --dry-run.",
            )
    if db:
        # Imported only here: other commands need no store.
        from hub.cli.offline_prune import opened_for_prune

        with failures_told(), opened_for_prune(db) as answers:
            _prune(answers, request, is_asked=not is_yes, is_json=is_json)
        return
    with channel_to(hub) as channel:
        _prune(HubServiceStub(channel).PruneEvents, request, is_asked=not is_yes, is_json=is_json)


def _prune(answers: Answers, request: PruneEventsRequest, *, is_asked: bool, is_json: bool) -> None:
    """Prune, after the person was asked who may be asked; say what went."""
    if is_asked and not request.is_dry_run:
        dry = PruneEventsRequest()
        dry.CopyFrom(request)
        dry.is_dry_run = True
        found = _last_of(answers, dry)
        # Not on standard output, which is for what was done.
        print(f"This drops for good {_words(found)}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise CommandFailed("nothing was pruned")
    done = _last_of(answers, request)
    if is_json:
        print_json({**message_to_json(done), "is_dry_run": request.is_dry_run})
        return
    print(f"{'would drop' if request.is_dry_run else 'dropped'} {_words(done)}")


def _last_of(answers: Answers, request: PruneEventsRequest) -> PruneEventsResponse:
    """Return the last answer, which says that all is done; the others move the bar."""
    what = "counting" if request.is_dry_run else "pruning"
    answer = PruneEventsResponse()
    with shown_progress() as tell:
        for answer in answers(request):
            tell(what, answer.considered_count, total=answer.total_count)
    if not answer.is_done:
        raise CommandFailed(
            "the prune ended before it was done", hint="Give it again: it goes on from there."
        )
    return answer


def _words(found: PruneEventsResponse) -> str:
    """Say what went, or would."""
    kibibytes = -(-found.payload_bytes // _KIBIBYTE)
    return (
        f"{found.payload_count} payloads ({kibibytes} KiB) of {found.total_count} events,"
        f" {found.resource_count} ended leases, {found.receipt_count} receipts"
        f" and the presence of {found.runtime_count} runtimes"
    )
