"""Series: the leases of a rule, which of them is meant, and calendars."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli import series, series_ical
from tenure_core.recurrence.readings import Doubled, Note
from tenure_core.recurrence.rule import Rule, expand
from tenure_runtime.rpc.wire import to_duration, to_millis, to_timestamp

BERLIN = ZoneInfo("Europe/Berlin")
RULE = Rule("FREQ=WEEKLY;BYDAY=TU;COUNT=3", datetime(2026, 12, 8, 9), BERLIN)


def leases() -> list[lpb.Lease]:
    wanted = lpb.Lease(node_count=2, amounts={"cpu": 1_000}, duration=to_duration(7_200_000))
    made = series.requests(wanted, "class", BERLIN, series.bookings("class", BERLIN, expand(RULE)))
    found = []
    for request in made:
        lease = request.lease
        lease.name = f"leases/{request.lease_id}"
        lease.state = lpb.Lease.STATE_SCHEDULED
        found.append(lease)
    return found


def test_each_occurrence_is_an_advance_lease_that_says_what_it_is_for() -> None:
    first = leases()[0]

    assert first.name == "leases/class-20261208t0900"
    assert to_millis(first.terms.advance.start_time) == 1_796_716_800_000
    assert dict(first.labels) == {
        "tenure/series": "class",
        "tenure/occurrence": "2026-12-08T09:00:00+01:00",
        "tenure/zone": "Europe/Berlin",
    }


def test_times_that_are_twice_are_two_leases() -> None:
    rule = Rule("FREQ=DAILY;COUNT=1", datetime(2027, 10, 31, 2, 30), BERLIN, doubled=Doubled.BOTH)

    booked = series.bookings("night", BERLIN, expand(rule))

    assert [(each.lease, each.shown.isoformat(), each.note) for each in booked] == [
        ("night-20271031t0230", "2027-10-31T02:30:00+02:00", Note.TWICE),
        ("night-20271031t0230b", "2027-10-31T02:30:00+01:00", Note.TWICE),
    ]


@pytest.mark.parametrize(
    ("only", "from_", "days"),
    [
        (None, None, [8, 15, 22]),
        ("2026-12-15", None, [15]),
        ("2026-12-15T09:00", None, [15]),
        (None, "2026-12-15", [15, 22]),
        (None, "2026-12-15T09:01", [22]),
    ],
)
def test_a_part_is_a_day_a_time_or_what_follows(
    only: str | None, from_: str | None, days: list[int]
) -> None:
    meant = [None if text is None else series.parse_local(text) for text in (only, from_)]

    found = series.chosen(reversed(leases()), *meant)

    assert [series.occurrence_of(lease).day for lease in found] == days


def test_what_is_not_in_the_series_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no occurrence 2026-12-16"):
        series.chosen(leases(), date(2026, 12, 16), None)
    with pytest.raises(ValueError, match="is no day or time"):
        series.parse_local("next week")
    with pytest.raises(ValueError, match="has a zone"):
        series.parse_local("2026-12-15T09:00+01:00")
    with pytest.raises(ValueError, match="no time zone"):
        series.zone_of("Mars/Base")


def test_a_calendar_has_an_event_for_each_lease() -> None:
    text = series_ical.write(leases(), datetime(2026, 12, 1, tzinfo=UTC))

    assert text.count("BEGIN:VEVENT") == 3
    assert "UID:class-20261215t0900@tenure\n" in text
    assert "DTSTART:20261215T080000Z\nDURATION:PT2H\n" in text
    assert "STATUS:CONFIRMED\n" in text


EVENT = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//someone//EN
BEGIN:VEVENT
UID:1
DTSTART;TZID=Europe/Berlin:20261208T090000
DTEND;TZID=Europe/Berlin:20261208T103000
RRULE:FREQ=WEEKLY;UNTIL=20261230T000000Z;BYDAY=TU
EXDATE;TZID=Europe/Berlin:20261215T090000
SUMMARY:Class
END:VEVENT
END:VCALENDAR
"""


def test_a_recurring_event_becomes_a_rule() -> None:
    event = series_ical.read(EVENT.replace("\n", "\r\n"))
    rule = Rule(event.rule, event.first, event.zone, exceptions=event.exceptions)

    assert (event.zone.key, event.duration) == ("Europe/Berlin", timedelta(minutes=90))
    assert [each.local.day for each in expand(rule)] == [8, 22, 29]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "no iCalendar file"),
        (EVENT.replace("RRULE:FREQ=WEEKLY;UNTIL=20261230T000000Z;BYDAY=TU\n", ""), "0 recurring"),
        (EVENT.replace("DTEND;TZID=Europe/Berlin:20261208T103000\n", ""), "no end"),
    ],
)
def test_a_calendar_that_cannot_be_booked_says_why(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        series_ical.read(text)


def test_moved_leases_keep_what_they_were_made_for() -> None:
    moved = leases()[1]
    moved.terms.advance.start_time.CopyFrom(to_timestamp(1_797_400_000_000))

    assert series.chosen([moved], date(2026, 12, 15), None) == [moved]
