"""Spans of every week as people type and read them: `mon-fri,20:00,10h`."""

from __future__ import annotations

import re
from typing import Final

from tenure.admission.v1 import quota_pb2 as qpb
from tenure_cli.times import parse_duration, show_duration
from tenure_runtime.rpc.wire import span_to_millis, to_duration

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_MINUTE_MS: Final = 60_000


def weekly_spans(text: str) -> list[qpb.WeeklySpan]:
    """Return the spans that a text names. Raises ValueError with what would be right."""
    days, comma, rest = text.lower().partition(",")
    clock, second, length = rest.partition(",")
    found = _CLOCK.fullmatch(clock.strip())
    first, _, last = days.strip().partition("-")
    last = last or first
    if not (comma and second and found) or first not in DAYS or last not in DAYS:
        wanted = f"--weekly is DAY[-DAY],HH:MM,LENGTH as in mon-fri,20:00,10h, not {text!r}"
        raise ValueError(wanted)
    start = (int(found[1]) * 60 + int(found[2])) * _MINUTE_MS
    duration = to_duration(parse_duration(length.strip()))
    count = (DAYS.index(last) - DAYS.index(first)) % 7 + 1
    return [
        qpb.WeeklySpan(
            day=(DAYS.index(first) + number) % 7 + 1,
            start_offset=to_duration(start),
            duration=duration,
        )
        for number in range(count)
    ]


def show_weekly(quota: qpb.Quota) -> list[str]:
    """Return the spans of a quota, each as a text, and the zone."""
    texts = []
    for span in quota.weekly_spans:
        hour, minute = divmod(span_to_millis(span.start_offset) // _MINUTE_MS, 60)
        length = show_duration(span_to_millis(span.duration))
        texts.append(f"{DAYS[span.day - 1]},{hour:02}:{minute:02},{length}")
    return [*texts, quota.time_zone] if texts else []
