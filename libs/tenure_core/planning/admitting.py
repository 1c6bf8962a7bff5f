"""Leases that are planned for the first time: refused where the admission policy says so."""

from __future__ import annotations

from tenure_core.planning.book import PlanningBook
from tenure_core.planning.plan import Reject
from tenure_core.policies.admission import AcceptAll


def refuse_unwanted(book: PlanningBook) -> None:
    """Ask the admission policy about each lease that joined since the last pass."""
    policy = book.policies.admission
    if not isinstance(policy, AcceptAll):
        for lease in book.sorted(book.joined):
            refusal = policy.refusal(lease, book.now)
            if refusal is not None:
                book.settle(lease.id)
                book.decide(Reject(lease.id, refusal.reason, refusal.message))
    book.joined.clear()
