"""Leases that are planned for the first time: taken, or refused by admission or by their price."""

from __future__ import annotations

from tenure_core.planning.book import PlanningBook
from tenure_core.planning.plan import Reject
from tenure_core.planning.quoting import REFUSED, REFUSED_TEXT
from tenure_core.policies.admission import AcceptAll, Refusal
from tenure_core.policies.pricing import Free


def refuse_unwanted(book: PlanningBook) -> None:
    """Look at each lease that joined since the last pass: at its price too, where it queues."""
    policies = book.policies
    if not (isinstance(policies.admission, AcceptAll) and isinstance(policies.pricing, Free)):
        for lease in book.sorted(book.joined):
            refusal = policies.admission.refusal(lease, book.now)
            if refusal is None and lease.id in book.queue and not book.quotes.agrees(lease):
                refusal = Refusal(REFUSED, REFUSED_TEXT)
            if refusal is not None:
                book.settle(lease.id)
                book.decide(Reject(lease.id, refusal.reason, refusal.message))
    book.joined.clear()
