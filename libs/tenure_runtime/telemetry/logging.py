"""Logs: structlog, one JSON object a line (or coloured text for people), on standard error.

Decides the form of a line: time, level, event, service, trace id, then what was bound. Values under
keys that name a secret never leave. What is worth a line is left to the callers; event names are
`noun.verbed`, and values are passed by keyword: `log.info("lease.admitted", lease=lease_id)`.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO, cast

import structlog

from tenure_runtime.telemetry.tracing import current_trace_id

Form = Literal["json", "console"]
Logger = structlog.stdlib.BoundLogger
Event = MutableMapping[str, Any]

HIDDEN: Final = "[hidden]"
_SECRET_KEY: Final = re.compile(
    r"(^|_)(password|passwd|secret|token|api_key|authorization|dsn|private_key)s?$", re.IGNORECASE
)
_SECRET_TEXT: Final = re.compile(
    r"(?P<key>tn[rk]_[a-z0-9.-]+)_[A-Za-z0-9-]{20,}"
    r"|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"
    r"|(?P<at>://[^:/@\s]+):[^@\s]+@"
)
_SECRET_SIGNS: Final = ("tnr_", "tnk_", "eyJ", "://")


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
            if _SECRET_KEY.search(key):
                event[key] = HIDDEN
            elif any(sign in value for sign in _SECRET_SIGNS):
                event[key] = _SECRET_TEXT.sub(_hidden, value)
        elif _SECRET_KEY.search(key) and not isinstance(value, int):
            event[key] = HIDDEN
    return event


def _hidden(match: re.Match[str]) -> str:
    if match["key"]:
        return f"{match['key']}_{HIDDEN}"
    return f"{match['at']}:{HIDDEN}@" if match["at"] else HIDDEN


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
