"""Rules of RFC 5545 in a zone: which instants they mean, and what they are refused for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure_core.errors import Invalid
from tenure_core.recurrence.readings import Doubled, Missing, Note, read_clock, show_clock
from tenure_core.recurrence.rule import OCCURRENCES_MAX, Occurrence, Rule, expand

BERLIN = ZoneInfo("Europe/Berlin")
TUESDAY = datetime(2026, 12, 8, 9)


def millis(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def instants(found: list[Occurrence]) -> list[str]:
    return [
        f"{datetime.fromtimestamp(each.at / 1_000, UTC):%Y-%m-%d %H:%M}"
        for each in found
        if each.at is not None
    ]


def reasons(rule: Rule) -> list[str]:
    with pytest.raises(Invalid) as refused:
        expand(rule)
    return [violation.reason for violation in refused.value.violations]


def test_a_class_every_tuesday_keeps_its_hour_over_the_change_of_clocks() -> None:
    rule = Rule("FREQ=WEEKLY;BYDAY=TU;COUNT=3", datetime(2027, 3, 16, 9), BERLIN)

    found = expand(rule)

    assert [each.local for each in found] == [datetime(2027, 3, day, 9) for day in (16, 23, 30)]
    assert instants(found) == ["2027-03-16 08:00", "2027-03-23 08:00", "2027-03-30 07:00"]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (Missing.LATER, [Occurrence(datetime(2027, 3, 28, 2, 30), 0, Note.MOVED)]),
        (Missing.SKIP, [Occurrence(datetime(2027, 3, 28, 2, 30), None, Note.SKIPPED)]),
    ],
)
def test_a_time_that_clocks_jump_over(missing: Missing, expected: list[Occurrence]) -> None:
    rule = Rule("FREQ=DAILY;COUNT=2", datetime(2027, 3, 27, 2, 30), BERLIN, missing)

    plain, jumped = expand(rule)

    assert plain.note is Note.PLAIN
    assert (jumped.local, jumped.note) == (expected[0].local, expected[0].note)
    assert jumped.at == (None if missing is Missing.SKIP else millis("2027-03-28T03:30+02:00"))


@pytest.mark.parametrize(
    ("doubled", "expected"),
    [
        (Doubled.FIRST, ["2027-10-31 00:30"]),
        (Doubled.SECOND, ["2027-10-31 01:30"]),
        (Doubled.BOTH, ["2027-10-31 00:30", "2027-10-31 01:30"]),
    ],
)
def test_a_time_that_clocks_show_twice(doubled: Doubled, expected: list[str]) -> None:
    rule = Rule("FREQ=DAILY;COUNT=1", datetime(2027, 10, 31, 2, 30), BERLIN, doubled=doubled)

    found = expand(rule)

    assert instants(found) == expected
    assert {each.note for each in found} == {Note.TWICE}


def test_an_end_in_utc_counts_as_the_zones_clocks_show_it() -> None:
    """2026-12-10 08:00 UTC is 09:00 in Berlin: that day's occurrence is still in."""
    rule = Rule("FREQ=DAILY;UNTIL=20261210T080000Z", TUESDAY, BERLIN)

    assert [each.local.day for each in expand(rule)] == [8, 9, 10]


def test_exceptions_leave_out_days_or_single_times() -> None:
    rule = Rule(
        "FREQ=HOURLY;INTERVAL=12;COUNT=6",
        TUESDAY,
        BERLIN,
        exceptions=frozenset({date(2026, 12, 9), datetime(2026, 12, 8, 21)}),
    )

    assert [each.local for each in expand(rule)] == [
        datetime(2026, 12, 8, 9),
        datetime(2026, 12, 10, 9),
        datetime(2026, 12, 10, 21),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("every Tuesday", ["RULE_INVALID"]),
        ("FREQ=WEEKLY", ["RULE_ENDLESS"]),
        ("FREQ=SOMETIMES;COUNT=3", ["RULE_INVALID"]),
        ("FREQ=WEEKLY;BYDAY=XX", ["RULE_ENDLESS", "RULE_INVALID"]),
        ("FREQ=DAILY;COUNT=2000", ["TOO_MANY"]),
        ("FREQ=DAILY;UNTIL=20200101", ["NO_OCCURRENCE"]),
    ],
)
def test_rules_that_cannot_be_booked_are_refused(text: str, expected: list[str]) -> None:
    assert reasons(Rule(text, TUESDAY, BERLIN)) == expected


def test_an_exception_without_an_occurrence_is_a_mistake() -> None:
    off = frozenset({date(2026, 12, 9), date(2026, 12, 15)})

    assert reasons(Rule("FREQ=WEEKLY;COUNT=2", TUESDAY, BERLIN, exceptions=off)) == [
        "EXCEPTION_NOT_FOUND"
    ]


def test_as_many_as_are_booked_at_once_are_taken() -> None:
    assert len(expand(Rule(f"FREQ=DAILY;COUNT={OCCURRENCES_MAX}", TUESDAY, BERLIN))) == 1_000


ZONES = st.sampled_from(
    ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata"]
)
LOCALS = st.datetimes(datetime(1975, 1, 1), datetime(2035, 1, 1))


@given(LOCALS, ZONES, st.sampled_from(Missing), st.sampled_from(Doubled))
def test_a_reading_is_what_clocks_show_then(
    local: datetime, name: str, missing: Missing, doubled: Doubled
) -> None:
    zone, local = ZoneInfo(name), local.replace(microsecond=0)

    for at, note in read_clock(local, zone, missing, doubled):
        if at is None:
            assert (note, missing) == (Note.SKIPPED, Missing.SKIP)
            continue
        shown = show_clock(at, zone).replace(tzinfo=None)
        assert (shown == local) is (note is not Note.MOVED)
        assert shown >= local
