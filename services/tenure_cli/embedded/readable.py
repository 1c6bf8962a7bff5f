"""One line of a service's JSON log as a person reads it in the stream of `tenure up`."""

from __future__ import annotations

import json
from typing import Final

_QUIET: Final = frozenset({"call.served"})
_LEFT_OUT: Final = frozenset(
    {"event", "level", "timestamp", "service", "trace_id", "exception", "logger"}
)
_MARKS: Final = {"warning": "! ", "error": "!! ", "critical": "!! "}


def readable(line: str) -> str | None:
    """Return the line in words, None for one that only machines want, as is when it is no JSON."""
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    if not isinstance(entry, dict):
        return line
    event, level = str(entry.get("event", "")), str(entry.get("level", "info"))
    if level == "debug" or (event in _QUIET and entry.get("code") in ("OK", "CANCELLED")):
        return None
    clock = str(entry.get("timestamp", ""))[11:19]
    facts = " ".join(f"{key}={value}" for key, value in entry.items() if key not in _LEFT_OUT)
    text = f"{clock} {_MARKS.get(level, '')}{event} {facts}".strip()
    return f"{text}\n{entry['exception']}" if entry.get("exception") else text
