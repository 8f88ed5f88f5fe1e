"""Where the log goes: standard error, for people on a terminal, as JSON lines otherwise."""

import logging
import sys

import structlog


def configure_logs() -> None:
    """Set up structlog for the process, and let the libraries' own loggers speak of trouble only."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if sys.stderr.isatty():
        # The default shows the local variables of each frame, and among those are payloads and nonces.
        plain = structlog.dev.plain_traceback
        last: list[structlog.typing.Processor] = [structlog.dev.ConsoleRenderer(exception_formatter=plain)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
