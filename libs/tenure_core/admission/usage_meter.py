"""What each owner and project used, day by day: what fair share is made of.

Usage is amount x milliseconds, exact. A lease counts from when it is seen to run until it is seen
to run no more. What a leader stores now and then (`take`) its follower goes on from: a lease that
runs is counted from where the stored part ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, NamedTuple

from tenure_core.admission.budgets import day_of, split
from tenure_core.admission.fair_share import FairShareTerms, standing
from tenure_core.leases.lease import LeaseSpec
from tenure_core.resources import ResourceVector
from tenure_core.timebase import DAY_MS, Interval, Millis

DAYS_KEPT: Final = 92
"""Older days are forgotten."""

METER_MS: Final[Millis] = 10_000
"""How often what was used is taken and stored."""


class Account(NamedTuple):
    """One kind of resource as used by one owner for one project on one day since 1970 (UTC)."""

    day: int
    owner: str
    project: str
    kind: str


Usage = Mapping[Account, int]
"""Amount x milliseconds."""


@dataclass(slots=True)
class UsageMeter:
    """The usage of a pool up to `until`, and what was metered since and not taken yet."""

    until: Millis
    usage: dict[Account, int] = field(default_factory=dict)
    _running: dict[str, tuple[Millis, LeaseSpec]] = field(default_factory=dict)
    _pending: dict[Account, int] = field(default_factory=dict)

    def begin(self, lease: str, spec: LeaseSpec, since: Millis) -> None:
        """Note that a lease runs; one that is known to goes on counting."""
        self._running.setdefault(lease, (max(since, self.until), spec))

    def end(self, lease: str, at: Millis) -> None:
        """Note that a lease runs no more; one that did not is left as it is."""
        since, spec = self._running.pop(lease, (at, None))
        if spec is not None:
            self._add(spec, since, at)

    def _add(self, spec: LeaseSpec, since: Millis, until: Millis) -> None:
        if until <= since:
            return
        for piece in split(Interval(since, until), day_of):
            day = piece.start // DAY_MS
            for kind, amount in spec.amounts.items():
                account = Account(day, spec.owner, spec.project, kind)
                used = amount * spec.node_count * piece.duration_ms
                self._pending[account] = self._pending.get(account, 0) + used

    def metered(self, now: Millis) -> Usage:
        """Return what was used since `until` up to `now`; it is not part of the usage yet."""
        for lease, (since, spec) in self._running.items():
            self._add(spec, since, now)
            self._running[lease] = (max(since, now), spec)
        return dict(self._pending)

    def take(self, now: Millis) -> None:
        """Make what was used since `until` up to `now` part of the usage."""
        for account, used in self.metered(now).items():
            self.usage[account] = self.usage.get(account, 0) + used
        self._pending, self.until = {}, max(self.until, now)
        oldest = now // DAY_MS - DAYS_KEPT
        for account in [each for each in self.usage if each.day < oldest]:
            del self.usage[account]

    def factors(
        self,
        remembered: Mapping[str, Mapping[str, int]],
        half_life_ms: Millis,
        capacity: ResourceVector,
    ) -> dict[str, dict[str, Decimal]]:
        """Return the fair-share factor of everybody who used anything, by subject and name.

        `remembered` has the weights by subject, `owner` or `project`.
        """
        terms = FairShareTerms(
            half_life=Decimal(half_life_ms) / DAY_MS,
            lookback=Decimal(DAYS_KEPT),
            capacity={kind: Decimal(amount) for kind, amount in capacity.items()},
        )
        today = self.until // DAY_MS
        found: dict[str, dict[str, Decimal]] = {}
        for subject, weights in remembered.items():
            sums: dict[str, dict[tuple[int, str], int]] = {}
            for account, used in self.usage.items():
                of = sums.setdefault(account.owner if subject == "owner" else account.project, {})
                on = account.day, account.kind
                of[on] = of.get(on, 0) + used
            found[subject] = {
                name: standing(_days(of), today, _weight(weights, name), terms).factor
                for name, of in sums.items()
            }
        return found


def _days(sums: Mapping[tuple[int, str], int]) -> dict[int, dict[str, Decimal]]:
    """Return sums of amount x milliseconds as exact amount x seconds, by day and kind."""
    days: dict[int, dict[str, Decimal]] = {}
    for (day, kind), used in sums.items():
        days.setdefault(day, {})[kind] = Decimal(f"{used}E-3")
    return days


def _weight(weights: Mapping[str, int], name: str) -> Decimal | None:
    return Decimal(weights[name]) if name in weights else None
