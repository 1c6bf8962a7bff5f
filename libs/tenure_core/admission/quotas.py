"""Limits on what an owner, a project and a domain may hold, and the book of what they do.

`exceeded` compares; `QuotaBook` charges and releases. Usage is never a counter that drifts: it
changes only together with the set of charged leases, and `verify` recomputes it from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from tenure_core.admission.amounts import Amounts, minus, plus


class Scope(Enum):
    """Whose limit it is."""

    OWNER = "OWNER"
    PROJECT = "PROJECT"
    DOMAIN = "DOMAIN"
    KEY = "KEY"


@dataclass(frozen=True, slots=True)
class Limit:
    """The most of each kind (None: any amount) and of leases at once (None: any number).

    A kind that is not named is limited to zero; whoever reads a policy completes it first.
    """

    amounts: Mapping[str, int | None] | None = None
    leases: int | None = None
    private_leases: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What somebody holds now: amounts, and how many leases, private ones apart."""

    amounts: Amounts = field(default_factory=dict)
    leases: int = 0
    private_leases: int = 0

    def with_lease(self, amounts: Amounts, *, private: bool) -> Held:
        """Return what is held with one lease more."""
        return Held(
            plus(self.amounts, amounts),
            self.leases + (not private),
            self.private_leases + private,
        )


@dataclass(frozen=True, slots=True)
class Excess:
    """One kind of which a request would make somebody hold more than the limit."""

    kind: str
    held: int
    requested: int
    limit: int

    @property
    def by(self) -> int:
        """Return how much is too much."""
        return self.held + self.requested - self.limit


def exceeded(
    held: Amounts,
    requested: Amounts,
    limit: Mapping[str, int | None],
    *,
    raised_kinds_only: bool = True,
) -> tuple[Excess, ...]:
    """Return every kind of which `requested` on top of `held` is more than `limit`, by name.

    Only kinds that the request raises count, so that being over the limit in one kind does not stop
    work that asks nothing of it. The ancestor compares all kinds of the three vectors
    (`raised_kinds_only=False`).
    """
    kinds = requested if raised_kinds_only else {*held, *requested, *limit}
    found = []
    for kind in kinds:
        most = limit.get(kind, 0)
        asked = requested.get(kind, 0)
        if most is None or (raised_kinds_only and asked <= 0):
            continue
        if held.get(kind, 0) + asked > most:
            found.append(Excess(kind, held.get(kind, 0), asked, most))
    return tuple(sorted(found, key=lambda excess: excess.kind))


def count_reached(count: int, limit: int | None) -> bool:
    """Say whether one lease more would be more than `limit`; None is no limit."""
    return limit is not None and count + 1 > limit


def policy_count(written: int | None) -> int | None:
    """Return the limit that a policy's number means: zero, less, or nothing is no limit."""
    return written if written is not None and written > 0 else None


@dataclass(frozen=True, slots=True)
class Charge:
    """What one lease is charged to each of its scopes for."""

    accounts: tuple[tuple[Scope, str], ...]
    amounts: Amounts
    private: bool = False


class QuotaBook:
    """Who is charged for what. Charging or releasing a lease twice does what once does."""

    def __init__(self) -> None:
        self._charges: dict[str, Charge] = {}
        self._held: dict[tuple[Scope, str], Held] = {}

    def charge(self, lease: str, charge: Charge) -> bool:
        """Charge the lease; False, and nothing changes, when it is charged already."""
        if lease in self._charges:
            return False
        self._charges[lease] = charge
        for account in charge.accounts:
            self._held[account] = self.held(*account).with_lease(
                charge.amounts, private=charge.private
            )
        return True

    def release(self, lease: str) -> bool:
        """Give back what the lease was charged; False when it is not charged."""
        charge = self._charges.pop(lease, None)
        if charge is None:
            return False
        for account in charge.accounts:
            before = self._held[account]
            self._held[account] = Held(
                minus(before.amounts, charge.amounts),
                before.leases - (not charge.private),
                before.private_leases - charge.private,
            )
        return True

    def held(self, scope: Scope, name: str) -> Held:
        """Return what is charged to somebody."""
        return self._held.get((scope, name), Held())

    def verify(self) -> list[tuple[Scope, str]]:
        """Return the accounts whose usage is not the sum over the charged leases: always none."""
        sums: dict[tuple[Scope, str], Held] = {}
        for charge in self._charges.values():
            for account in charge.accounts:
                before = sums.get(account, Held())
                sums[account] = before.with_lease(charge.amounts, private=charge.private)
        return [
            account
            for account, held in self._held.items()
            if _without_zeros(held) != _without_zeros(sums.get(account, Held()))
        ]


def _without_zeros(held: Held) -> Held:
    amounts = {kind: amount for kind, amount in held.amounts.items() if amount}
    return Held(amounts, held.leases, held.private_leases)
