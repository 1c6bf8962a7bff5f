"""Times as people write and read them, in a zone that changes its clocks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tenure_cli.times import in_zone_of, local_now, parse_instant, show_instant

WINTER = datetime(2027, 1, 31, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def winter_here() -> datetime:
    return WINTER.astimezone(local_now().tzinfo)


def test_a_time_in_summer_typed_in_winter_is_that_of_the_clocks_in_summer() -> None:
    at = parse_instant("2027-07-01T09:00", winter_here())
    assert at.astimezone(UTC) == datetime(2027, 7, 1, 7, 0, tzinfo=UTC)


def test_an_instant_in_summer_is_shown_in_winter_as_clocks_will_show_it() -> None:
    millis = int(datetime(2027, 7, 1, 7, 0, tzinfo=UTC).timestamp() * 1_000)
    assert show_instant(millis, winter_here()) == "2027-07-01 09:00"


def test_tomorrow_at_nine_is_at_nine_on_the_day_the_clocks_change() -> None:
    before = datetime(2027, 3, 27, 12, 0, tzinfo=UTC).astimezone(local_now().tzinfo)
    at = parse_instant("tomorrow 09:00", before)
    assert at.astimezone(UTC) == datetime(2027, 3, 28, 7, 0, tzinfo=UTC)


def test_plus_two_hours_is_two_hours_over_a_change_of_the_clocks() -> None:
    before = datetime(2027, 3, 28, 0, 30, tzinfo=UTC).astimezone(local_now().tzinfo)
    at = parse_instant("+2h", before)
    assert at.astimezone(UTC) == datetime(2027, 3, 28, 2, 30, tzinfo=UTC)


def test_an_instant_that_no_calendar_holds_is_named_not_raised() -> None:
    assert show_instant(253_402_300_800_000, winter_here()) == "beyond 9999"
    assert show_instant(-62_135_596_800_001, winter_here()) == "before 1"


def test_instants_within_a_services_sentence_are_shown_in_the_users_zone() -> None:
    said = "It starts at 2027-07-01 07:00:05 UTC. Today it began at 2027-01-31 11:30:00 UTC."
    wanted = "It starts at 2027-07-01 09:00. Today it began at 12:30:00."
    assert in_zone_of(winter_here(), said) == wanted
