"""Logs: structlog, one JSON object a line (or coloured text for people), on standard error.

Decides the form of a line: time, level, event, service, trace id, then what was bound. Values under
keys that name a secret never leave. What is worth a line is left to the callers; event names are
`noun.verbed`, and values are passed by keyword: `log.info("lease.admitted", lease=lease_id)`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO, cast

import structlog

from tenure_core.secrets import HIDDEN, hide_in_text, names_secret
from tenure_runtime.telemetry.tracing import current_trace_id

Form = Literal["json", "console"]
Logger = structlog.stdlib.BoundLogger
Event = MutableMapping[str, Any]


def configure_logging(
    service: str, *, level: str = "info", form: Form = "json", stream: TextIO | None = None
) -> None:
    """Set the form of all log lines of this process, also of libraries that use `logging`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    target = stream or sys.stderr
    renderer: Any = (
        structlog.processors.JSONRenderer(default=str)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=target.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with(service),
            structlog.processors.format_exc_info,
            hide_secrets,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=False,
    )
    _forward_standard_logging(max(number, logging.WARNING))


def get_logger(**bound: object) -> Logger:
    """Return a logger that adds `bound` to each line."""
    return cast("Logger", structlog.get_logger(**bound))


def _with(service: str) -> Any:
    def add(_logger: object, _method: str, event: Event) -> Event:
        event["service"] = service
        trace_id = current_trace_id()
        if trace_id:
            event["trace_id"] = trace_id
        return event

    return add


def hide_secrets(_logger: object, _method: str, event: Event) -> Event:
    """Replace values under secret names, and keys and passwords inside texts."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = HIDDEN if names_secret(key) else hide_in_text(value)
        elif names_secret(key) and not isinstance(value, int):
            event[key] = HIDDEN
    return event


class _Forward(logging.Handler):
    """Hands records of libraries to structlog, so that a process has one form of line."""

    def emit(self, record: logging.LogRecord) -> None:
        get_logger(library=record.name).log(
            record.levelno,
            "library.logged",
            text=record.getMessage(),
            exc_info=record.exc_info,
        )


def _forward_standard_logging(level: int) -> None:
    logging.basicConfig(handlers=[_Forward()], level=level, force=True)
