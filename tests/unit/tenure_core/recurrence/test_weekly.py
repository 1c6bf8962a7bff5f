"""Spans of every week lie where the clocks of their zone say."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.recurrence.weekly import WEEKS_MAX, WeeklySpan, within
from tenure_core.timebase import DAY_MS, FOREVER, HOUR_MS, MINUTE_MS, Interval

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo | None = None) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone or UTC).timestamp() * 1_000)


NIGHT = WeeklySpan(4, 22 * HOUR_MS, 10 * HOUR_MS)
"""From Friday 22:00."""


def test_a_span_is_cut_to_the_window_also_where_it_began_before() -> None:
    window = Interval(at("2026-12-05T00:00"), at("2026-12-11T23:00"))

    assert within([NIGHT], UTC, window) == [
        Interval(at("2026-12-05T00:00"), at("2026-12-05T08:00")),
        Interval(at("2026-12-11T22:00"), at("2026-12-11T23:00")),
    ]


def test_clocks_that_change_move_the_start_and_not_the_length() -> None:
    window = Interval(at("2026-03-20T00:00"), at("2026-04-05T00:00"))
    starts = [each.start for each in within([NIGHT], BERLIN, window)]

    assert starts == [
        at("2026-03-20T22:00", BERLIN),
        at("2026-03-27T22:00", BERLIN),
        at("2026-04-03T22:00", BERLIN),
    ]
    assert starts[1] - starts[0] == 7 * DAY_MS
    assert starts[2] - starts[1] == 7 * DAY_MS - HOUR_MS


def test_a_time_that_clocks_leave_out_is_read_later() -> None:
    gap = WeeklySpan(6, 2 * HOUR_MS + 30 * MINUTE_MS, HOUR_MS)
    window = Interval(at("2026-03-29T00:00"), at("2026-03-29T12:00"))

    [found] = within([gap], BERLIN, window)

    assert found.start == at("2026-03-29T01:30")


def test_a_window_without_an_end_is_looked_at_for_a_year() -> None:
    found = within([NIGHT], UTC, Interval(at("2026-12-01T00:00"), FOREVER))

    assert len(found) == WEEKS_MAX


_SPANS = st.builds(
    WeeklySpan,
    st.integers(0, 6),
    st.integers(0, DAY_MS - 1),
    st.integers(MINUTE_MS, 7 * DAY_MS),
)


@settings(deadline=None, max_examples=100)
@given(_SPANS, st.integers(0, 60 * DAY_MS), st.integers(1, 30 * DAY_MS))
def test_an_instant_is_in_a_span_when_the_week_says_so(
    span: WeeklySpan, begin: int, length: int
) -> None:
    start = at("2026-01-01T00:00") + begin
    found = within([span], UTC, Interval(start, start + length))

    for instant in (start, start + length // 3, start + length - 1):
        # 1970-01-05 was a Monday.
        since = (instant - 4 * DAY_MS - span.day * DAY_MS - span.start_ms) % (7 * DAY_MS)
        assert any(each.contains(instant) for each in found) is (since < span.duration_ms)
