"""Times and durations as people write and read them, in their own zone.

Written: `+2h`, `+1h30m`, `now`, `today 17:00`, `tomorrow 09:00`, `09:00` (the next one), a date,
or ISO 8601 with or without a zone; without one it is the user's. Durations: `90`, `10m`, `1h30m`,
`2d`, `500ms`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
_CLOCK = re.compile(r"(?:(today|tomorrow)\s+)?(\d{1,2}):(\d{2})(?::(\d{2}))?")


def parse_duration(text: str) -> int:
    """Return a duration in milliseconds; a bare number counts seconds. Raises ValueError."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return round(float(text) * 1_000)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is no duration; write 90, 10m, 1h30m or 2d")
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def parse_instant(text: str, now: datetime) -> datetime:
    """Return the instant that a person wrote, seen from `now`, which has a zone.

    Raises ValueError, with a sentence on what would be right.
    """
    text = text.strip()
    if text.lower() == "now":
        return now
    if text[:1] in ("+", "-"):
        sign = 1 if text[0] == "+" else -1
        try:
            # In UTC: within a zone, Python adds what clocks show, not what passes.
            at = now.astimezone(UTC) + sign * timedelta(milliseconds=parse_duration(text[1:]))
            return at.astimezone(now.tzinfo)
        except OverflowError:
            raise ValueError(f"{text!r} lies beyond the years 1 to 9999") from None
    clock = _CLOCK.fullmatch(text.lower())
    if clock:
        return _at_clock(clock, now)
    try:
        written = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time; write +2h, -1d, tomorrow 09:00, 2027-01-31T09:00 or with a zone"
        ) from None
    return written if written.tzinfo else written.replace(tzinfo=now.tzinfo)


def _at_clock(clock: re.Match[str], now: datetime) -> datetime:
    hour, minute, second = int(clock[2]), int(clock[3]), int(clock[4] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"there is no {clock[2]}:{clock[3]} on a clock")
    at = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if clock[1] == "tomorrow" or (clock[1] is None and at <= now):
        at += timedelta(days=1)
    return at


def local_now() -> datetime:
    """Return the present instant in the user's zone."""
    return datetime.now(_Local())  # noqa: TID251  # a person's clock, not a decision's


class _Local(tzinfo):
    """The user's zone with its changes over the year.

    `datetime.astimezone()` alone gives the offset of one instant, and a time in July that is typed
    in January would be an hour off.
    """

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        """Return the offset that clocks here have at this time."""
        return None if at is None else at.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _at: datetime | None) -> timedelta | None:
        """Return None: the offset says it all."""
        return None

    def tzname(self, at: datetime | None) -> str | None:
        """Return what the zone is called at this time."""
        return None if at is None else at.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, at: datetime) -> datetime:
        """Return the time that clocks here show at an instant given in UTC."""
        shown = at.replace(tzinfo=UTC).astimezone()
        return shown.replace(tzinfo=self)


def show_instant(millis: int, now: datetime, zone: tzinfo | None = None) -> str:
    """Return an instant in the user's zone, without the date when it is today."""
    try:
        at = datetime.fromtimestamp(millis / 1_000, UTC).astimezone(zone or now.tzinfo)
    except (ValueError, OverflowError):
        return "beyond 9999" if millis > 0 else "before 1"
    if at.date() == now.date():
        return at.strftime("%H:%M:%S")
    return at.strftime("%Y-%m-%d %H:%M")


def in_zone_of(now: datetime, text: str) -> str:
    """Return a service's sentence with its instants, which it says in UTC, in the user's zone."""

    def shown(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
        return show_instant(round(at.timestamp() * 1_000), now)

    return _IN_UTC.sub(shown, text)


def show_duration(millis: int) -> str:
    """Return a duration with its two largest units: `1h30m`, `2d4h`, `45s`, `0.3s`."""
    if millis < 10_000:
        return f"{millis / 1_000:g}s"
    seconds = millis // 1_000
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])
