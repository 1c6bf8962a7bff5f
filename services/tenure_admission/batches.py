"""Drafts that are stored together: which are refused, and why.

Pure. Decides on taken ids, unknown dependencies, cycles, and limits on how many leases may be open
or wait; the store supplies what it has locked or read in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tenure_admission.charges import (
    OWNER,
    PROJECT,
    Account,
    by_resource,
    counting,
    spelled_out,
)
from tenure_admission.records import OPEN_LEASES, WAITING_LEASES, Draft, Limit
from tenure_core.errors import AlreadyExists, DomainError, Exhausted, Invalid, NotFound, Violation
from tenure_core.timebase import Interval

COUNTS: Final = (OPEN_LEASES, WAITING_LEASES)
"""What a creation adds one to; a new lease waits."""


@dataclass(slots=True)
class Known:
    """What the transaction has read: owners of leases by id, limits, counts of leases.

    `counts` are of the leases that are open and that wait; they grow as drafts are accepted.
    """

    owners: dict[str, str]
    limits: Sequence[Limit] = ()
    counts: dict[Account, int] = field(default_factory=dict)

    def accept(self, draft: Draft) -> None:
        """Count a draft among what is known from now on."""
        self.owners[draft.id] = draft.owner
        for dimension, name in accounts_of(draft):
            for resource in COUNTS:
                account = (dimension, name, resource)
                self.counts[account] = self.counts.get(account, 0) + 1


def accounts_of(draft: Draft) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the accounts whose limits a draft counts against."""
    return (OWNER, draft.owner), (PROJECT, draft.project)


def settle(draft: Draft, known: Known) -> DomainError | None:
    """Return why one draft is refused, or None; then it is among what is known."""
    refusal = _taken(draft, known) or _missing(draft, known) or _over_limit(draft, known)
    if refusal is None:
        known.accept(draft)
    return refusal


def settle_batch(drafts: Sequence[Draft], known: Known) -> list[DomainError | None]:
    """Return why each draft of one batch is refused, or None.

    Items may depend on one another whatever their order: an item is settled once those it depends
    on are. O(items + dependencies).
    """
    refusals: list[DomainError | None] = [None] * len(drafts)
    members: dict[str, int] = {}
    for index, draft in enumerate(drafts):
        refusals[index] = _taken(draft, known)
        if refusals[index] is None:
            if draft.id in members:
                refusals[index] = taken(draft.id)
            else:
                members[draft.id] = index
    waits = {
        index: {members[each] for each in drafts[index].dependencies if each in members}
        for index in members.values()
    }
    for index in _in_order(waits):
        refusals[index] = settle(drafts[index], known)
    looping = _on_cycles({i: needs for i, needs in waits.items() if drafts[i].id not in known.owners
                          and refusals[i] is None})  # fmt: skip
    for index in members.values():
        if refusals[index] is None and drafts[index].id not in known.owners:
            refusals[index] = (
                _cycle(drafts[index]) if index in looping else _missing(drafts[index], known)
            )
    return refusals


def _in_order(waits: Mapping[int, set[int]]) -> list[int]:
    """Return the items that are on no cycle and wait for none, each after those it waits for."""
    left = {index: len(needs) for index, needs in waits.items()}
    dependents: dict[int, list[int]] = {index: [] for index in waits}
    for index, needs in waits.items():
        for need in needs:
            dependents[need].append(index)
    ready = [index for index, count in left.items() if count == 0]
    for index in ready:
        for dependent in dependents[index]:
            left[dependent] -= 1
            if left[dependent] == 0:
                ready.append(dependent)
    return ready


def _on_cycles(waits: Mapping[int, set[int]]) -> set[int]:
    """Return the items on (or between) cycles: no one is left that nobody waits for."""
    backwards: dict[int, set[int]] = {index: set() for index in waits}
    for index, needs in waits.items():
        for need in needs:
            if need in backwards:
                backwards[need].add(index)
    return set(waits) - set(_in_order(backwards))


def _taken(draft: Draft, known: Known) -> DomainError | None:
    return taken(draft.id) if draft.id in known.owners else None


def taken(lease_id: str) -> AlreadyExists:
    """Return the error of an id that another lease has."""
    return AlreadyExists("LEASE_EXISTS", f"leases/{lease_id} exists already.", lease=lease_id)


def _missing(draft: Draft, known: Known) -> DomainError | None:
    for each in draft.dependencies:
        owner = known.owners.get(each)
        if owner is None or (owner != draft.owner and not draft.sees_all):
            return NotFound(
                "DEPENDENCY_NOT_FOUND",
                f"leases/{draft.id} depends on leases/{each}, which does not exist.",
                dependency=each,
            )
    return None


def _cycle(draft: Draft) -> Invalid:
    text = f"leases/{draft.id} would wait for itself through other items"
    return Invalid([Violation("lease.dependencies", "DEPENDENCY_CYCLE", text)])


def _over_limit(draft: Draft, known: Known) -> DomainError | None:
    accounts = accounts_of(draft)
    for account, limits in by_resource(
        spelled_out(known.limits, Interval(draft.created, draft.created + 1))
    ).items():
        dimension, name, resource = account
        limit = counting(limits, draft.created)
        if limit is None or resource not in COUNTS or (dimension, name) not in accounts:
            continue
        used = known.counts.get(account, 0)
        if used >= limit.amount:
            what = "that have not ended" if resource == OPEN_LEASES else "that wait"
            return Exhausted(
                "LEASE_LIMIT_REACHED",
                f"Quota {limit.quota} allows {dimension} {name} {limit.amount} leases {what}; "
                f"there are {used}.",
                quota=f"quotas/{limit.quota}",
                dimension=dimension,
                name=name,
                resource=resource,
                limit=limit.amount,
                used=used,
            )
    return None
