"""Series as iCalendar files (RFC 5545), both ways."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import icalendar

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli.leases import show_amounts, state_name
from tenure_cli.series import SERIES
from tenure_runtime.rpc.wire import bare, span_to_millis, to_millis

_S: Final = lpb.Lease
_STATUS: Final = {
    _S.STATE_PENDING: "TENTATIVE",
    _S.STATE_QUEUED: "TENTATIVE",
    _S.STATE_CANCELLING: "CANCELLED",
    _S.STATE_CANCELLED: "CANCELLED",
    _S.STATE_REJECTED: "CANCELLED",
    _S.STATE_FAILED: "CANCELLED",
}


@dataclass(frozen=True, slots=True)
class Recurring:
    """A recurring event as a calendar has it."""

    rule: str
    first: datetime
    zone: ZoneInfo
    duration: timedelta
    exceptions: frozenset[date]


def write(leases: Iterable[lpb.Lease], now: datetime) -> str:
    """Return advance leases as a calendar, an event each."""
    calendar = icalendar.Calendar()
    calendar.add("prodid", "-//Tenure//tenure series//EN")
    calendar.add("version", "2.0")
    for lease in leases:
        event = icalendar.Event()
        event.add("uid", f"{bare(lease.name)}@tenure")
        event.add("dtstamp", now.astimezone(UTC).replace(microsecond=0))
        event.add("dtstart", _at(to_millis(lease.terms.advance.start_time)))
        event.add("duration", timedelta(milliseconds=span_to_millis(lease.duration)))
        event.add("summary", lease.labels[SERIES] or bare(lease.name))
        event.add("status", _STATUS.get(lease.state, "CONFIRMED"))
        what = f"{lease.node_count} × {show_amounts(lease.amounts)}, {state_name(lease.state)}"
        event.add("description", what)
        calendar.add_component(event)
    content: bytes = calendar.to_ical()
    return content.decode("utf-8").replace("\r\n", "\n")


def _at(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1_000, UTC).replace(microsecond=0)


def read(text: str) -> Recurring:
    """Return the recurring event of a calendar. Raises ValueError, saying what is amiss."""
    try:
        calendar = icalendar.Calendar.from_ical(text)
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"this is no iCalendar file: {error}") from None
    events = [event for event in calendar.walk("VEVENT") if event.get("rrule")]
    if len(events) != 1:
        raise ValueError(f"the calendar has {len(events)} recurring events; one is wanted")
    event: Any = events[0]
    first = getattr(event.get("dtstart"), "dt", None)
    if not isinstance(first, datetime):
        raise ValueError("the event lasts whole days; a booking has a time")  # noqa: TRY004  # a person's
    zone = first.tzinfo if first.tzinfo is not None else UTC
    name = getattr(zone, "key", None) or str(zone)
    rules = event["rrule"]
    if isinstance(rules, list):
        raise ValueError("the event has several rules; one is wanted")  # noqa: TRY004  # a person's
    return Recurring(
        rules.to_ical().decode(),
        first.replace(tzinfo=None),
        ZoneInfo(name),
        _duration(event, first),
        frozenset(_exceptions(event, zone)),
    )


def _duration(event: Any, first: datetime) -> timedelta:
    if event.get("duration") is not None:
        lasts: timedelta = event["duration"].dt
        return lasts
    if event.get("dtend") is None:
        raise ValueError("the event has no end and no duration")
    ends: datetime = event["dtend"].dt
    return ends - first


def _exceptions(event: Any, zone: Any) -> Iterable[date]:
    given = event.get("exdate", [])
    for group in given if isinstance(given, list) else [given]:
        for each in group.dts:
            at = each.dt
            if isinstance(at, datetime) and at.tzinfo is not None:
                at = at.astimezone(zone).replace(tzinfo=None)
            yield at
