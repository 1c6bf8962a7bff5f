"""Durations and instants as programs write them, and as milliseconds.

Decides what is understood: a duration is a timedelta, a number of seconds, or `90s`, `10m`,
`1h30m`, `2d`; an instant is a datetime with a zone, or a duration from now.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from tenure_core.timebase import Millis
from tenure_runtime.clocks import SystemClock
from tenure_runtime.rpc.wire import to_millis

Span = timedelta | float | str
"""How long: a timedelta, seconds, or text such as `1h30m`."""
When = datetime | timedelta
"""When: a datetime with a zone, or a timedelta from now."""

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def span_ms(span: Span) -> Millis:
    """Return a duration in milliseconds. Raises ValueError."""
    if isinstance(span, timedelta):
        return round(span / timedelta(milliseconds=1))
    if isinstance(span, (int, float)):
        return round(span * 1_000)
    text = span.strip().lower()
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{span!r} is no duration; write 90s, 10m, 1h30m or 2d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def instant_ms(when: When) -> Millis:
    """Return an instant in milliseconds since 1970. Raises ValueError for one without a zone."""
    if isinstance(when, timedelta):
        return SystemClock().now_ms() + span_ms(when)
    if when.tzinfo is None:
        raise ValueError(f"{when.isoformat()} has no zone: say which, for example datetime.UTC")
    return round((when - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


def instant(timestamp: Timestamp) -> datetime:
    """Return a wire instant as a datetime in UTC."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=to_millis(timestamp))
