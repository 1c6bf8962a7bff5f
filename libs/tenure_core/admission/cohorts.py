"""Borrowing inside a cohort: what one project leaves unused another may hold, until it is wanted.

Each member of a cohort has an amount of its own, and may borrow beyond it up to a limit, as long as
the cohort as a whole holds no more than its members have together. A member that wants its own back
gets it from those who borrow, those who borrow most (relative to what is theirs) first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from tenure_core.admission.amounts import Amounts, added_up, minus, plus
from tenure_core.admission.quotas import Excess, exceeded


@dataclass(frozen=True, slots=True)
class CohortMember:
    """What is a member's own, what it may borrow (None: all there is), and what it holds."""

    own: Amounts
    borrow_max: Amounts | None = None
    held: Amounts = field(default_factory=dict)

    def borrowed(self, kind: str) -> int:
        """Return how much of the kind it holds beyond its own."""
        return max(0, self.held.get(kind, 0) - self.own.get(kind, 0))


@dataclass(frozen=True, slots=True)
class Borrowing:
    """The verdict on a request: what is too much for the member, and what for the cohort.

    A request that is within the member's own is never too much for the cohort for good: then
    `takes_back` says from whom how much must come back first.
    """

    over_member: tuple[Excess, ...] = ()
    over_cohort: tuple[Excess, ...] = ()
    takes_back: Mapping[str, Amounts] = field(default_factory=dict)

    @property
    def granted(self) -> bool:
        """Say whether the request may be charged now."""
        return not self.over_member and not self.over_cohort and not self.takes_back


def judge(cohort: Mapping[str, CohortMember], name: str, requested: Amounts) -> Borrowing:
    """Say whether the member may hold `requested` more, and if not, why, or from whom it comes."""
    member = cohort[name]
    over_member: tuple[Excess, ...] = ()
    if member.borrow_max is not None:
        most = plus(member.own, member.borrow_max)
        over_member = exceeded(member.held, requested, most)
    whole = added_up(entry.own for entry in cohort.values())
    held = added_up(entry.held for entry in cohort.values())
    over_cohort = exceeded(held, requested, whole)
    after = plus(member.held, requested)
    mine = {
        excess.kind: excess.by
        for excess in over_cohort
        if after.get(excess.kind, 0) <= member.own.get(excess.kind, 0)
    }
    beyond = tuple(excess for excess in over_cohort if excess.kind not in mine)
    if beyond or over_member:
        return Borrowing(over_member, beyond)
    return Borrowing(takes_back=_from_borrowers(cohort, name, mine))


def _from_borrowers(
    cohort: Mapping[str, CohortMember], name: str, missing: Amounts
) -> dict[str, dict[str, int]]:
    back: dict[str, dict[str, int]] = {}
    for kind, amount in missing.items():
        left = amount
        for borrower in sorted(cohort, key=lambda entry: _degree(cohort[entry], kind, entry)):
            if borrower == name or left <= 0:
                continue
            part = min(left, cohort[borrower].borrowed(kind))
            if part > 0:
                back.setdefault(borrower, {})[kind] = part
                left -= part
        assert left <= 0, "who holds no more than its own can always have it back"
    return back


def _degree(member: CohortMember, kind: str, name: str) -> tuple[bool, Fraction, str]:
    """Sort key: whoever has nothing of its own first, then by the part borrowed, then by name."""
    own = member.own.get(kind, 0)
    borrowed = member.borrowed(kind)
    if own <= 0:
        return (borrowed == 0, Fraction(-borrowed), name)
    return (True, Fraction(-borrowed, own), name)


def unused(cohort: Mapping[str, CohortMember]) -> dict[str, int]:
    """Return what the whole cohort has and does not hold."""
    return minus(
        added_up(entry.own for entry in cohort.values()),
        added_up(entry.held for entry in cohort.values()),
    )
