"""Where the log goes: standard error, for people on a terminal, as JSON lines otherwise.

Libraries that log by the standard library's way are in the same lines. Each line that is written for a call
says which one. What a line never has are payloads, nonces and tokens: whoever logs names facts one by one.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor

from hub.config import LogFormat, LogLevel

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logs(
    log_format: LogFormat = "auto",
    level: LogLevel = "info",
    *,
    facts_of_call: Callable[[], dict[str, str]] = dict,
    stream: TextIO | None = None,
) -> None:
    """Set up the log of the process; "auto" is for people on a terminal, and JSON elsewhere.

    ``facts_of_call`` gives what each line says of the call that it is about, nothing where there is none.
    Libraries' own loggers speak of trouble only, whatever the level.
    """
    stream = stream or sys.stderr
    is_for_people = stream.isatty() if log_format == "auto" else log_format == "console"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _AddFacts(facts_of_call),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor]
    if is_for_people:
        # The default shows the local variables of each frame, and among those are payloads and nonces.
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(exception_formatter=plain, colors=stream.isatty())]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(logging.WARNING, LEVELS[level]))


@contextmanager
def without_log() -> Iterator[None]:
    """Keep silent what a hub would log: the command says in a sentence what is wrong."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


class _AddFacts:
    """Adds which call a line is about; what the line says itself is kept."""

    def __init__(self, facts_of_call: Callable[[], dict[str, str]]) -> None:
        self._facts_of_call = facts_of_call

    def __call__(self, _logger: object, _method_name: str, event_dict: EventDict) -> EventDict:
        """Add the facts, as structlog calls a processor."""
        for key, value in self._facts_of_call().items():
            event_dict.setdefault(key, value)
        return event_dict
