"""Budgets over periods: so many core-hours a month, charged ahead and settled at the end.

A booking is charged for its whole span at once, split over the periods that it touches; when it
ends early the rest comes back. Amounts are amount x milliseconds, exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tenure_core.admission.amounts import Amounts, minus, plus
from tenure_core.admission.quotas import Excess, exceeded
from tenure_core.timebase import DAY_MS, Interval, Millis

PeriodOf = Callable[[Millis], Interval]
"""Which period an instant lies in; periods follow one another without gaps."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def month_of(instant: Millis) -> Interval:
    """Return the calendar month (UTC) that the instant lies in."""
    day = _EPOCH + timedelta(days=instant // DAY_MS)
    first = day.replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return Interval(_millis(first), _millis(following))


def day_of(instant: Millis) -> Interval:
    """Return the day (UTC) that the instant lies in."""
    start = instant - instant % DAY_MS
    return Interval(start, start + DAY_MS)


def week_of(instant: Millis) -> Interval:
    """Return the week from Monday (UTC) that the instant lies in."""
    day = instant // DAY_MS
    monday = day - (day + 3) % 7
    return Interval(monday * DAY_MS, (monday + 7) * DAY_MS)


def split(span: Interval, period_of: PeriodOf) -> list[Interval]:
    """Return the span cut at the boundaries of periods."""
    pieces: list[Interval] = []
    begin = span.start
    while begin < span.end:
        end = min(span.end, period_of(begin).end)
        pieces.append(Interval(begin, end))
        begin = end
    return pieces


@dataclass(slots=True)
class Budget:
    """What may be used in each period, and what each lease is charged of it.

    `limit` is amount x milliseconds by kind; kinds that it does not name are not budgeted. `spent`
    is what was settled for good, by the start of the period.
    """

    limit: Mapping[str, int]
    period_of: PeriodOf = month_of
    charges: dict[str, tuple[Interval, Amounts]] = field(default_factory=dict)
    spent: dict[Millis, Amounts] = field(default_factory=dict)

    def charged(self, instant: Millis) -> dict[str, int]:
        """Return what is charged or spent in the period that the instant lies in."""
        period = self.period_of(instant)
        total: dict[str, int] = dict(self.spent.get(period.start, {}))
        for span, amounts in self.charges.values():
            shared = span.intersection(period)
            if shared is not None:
                total = plus(total, self._cost(amounts, shared))
        return total

    def left(self, instant: Millis) -> dict[str, int]:
        """Return what is left in the period that the instant lies in; negative after a cut."""
        return minus(self.limit, self.charged(instant))

    def refusal(self, lease: str, span: Interval, amounts: Amounts) -> tuple[Excess, ...]:
        """Return what would be too much in the first period in which something would; or nothing.

        What the lease is charged already does not count against it.
        """
        first = self.first_over(lease, span, amounts)
        return () if first is None else first[1]

    def first_over(
        self, lease: str, span: Interval, amounts: Amounts
    ) -> tuple[Interval, tuple[Excess, ...]] | None:
        """Return the first period in which it would be too much, and what; None for none."""
        others = Budget(self.limit, self.period_of, {**self.charges}, self.spent)
        others.charges.pop(lease, None)
        for piece in split(span, self.period_of):
            cost = self._cost(amounts, piece)
            over = exceeded(others.charged(piece.start), cost, self.limit)
            if over:
                return self.period_of(piece.start), over
        return None

    def charge(self, lease: str, span: Interval, amounts: Amounts) -> tuple[Excess, ...]:
        """Charge the lease for the span, instead of any earlier charge, unless refused."""
        refused = self.refusal(lease, span, amounts)
        if not refused:
            self.charges[lease] = (span, amounts)
        return refused

    def settle(self, lease: str, ended: Millis) -> bool:
        """Keep what was used until `ended`, give back the rest; False when nothing comes back."""
        span, amounts = self.charges.get(lease, (None, {}))
        if span is None or ended >= span.end:
            return False
        if ended <= span.start:
            del self.charges[lease]
        else:
            self.charges[lease] = (Interval(span.start, ended), amounts)
        return True

    def _cost(self, amounts: Amounts, span: Interval) -> dict[str, int]:
        return {
            kind: amounts.get(kind, 0) * span.duration_ms
            for kind in self.limit
            if amounts.get(kind, 0)
        }


def _millis(day: datetime) -> Millis:
    return (day - _EPOCH).days * DAY_MS
