"""The names of the four kinds of terms, as results and summaries write them."""

from __future__ import annotations

from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate, Terms


def kind_of(terms: Terms) -> str:
    """Return IMMEDIATE, BEST_EFFORT, ADVANCE or DEADLINE."""
    match terms:
        case Immediate():
            return "IMMEDIATE"
        case BestEffort():
            return "BEST_EFFORT"
        case Advance():
            return "ADVANCE"
        case Deadline():
            return "DEADLINE"
