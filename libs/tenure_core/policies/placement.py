"""Which of the nodes that fit are taken first."""

from __future__ import annotations

from enum import Enum


class HostSelection(Enum):
    """The order in which nodes that fit are filled; ties go by node id."""

    FIRST_FIT = "FIRST_FIT"
    """By node id."""
    BEST_FIT = "BEST_FIT"
    """The node with the least free share of its capacity at the start: packs."""
    WORST_FIT = "WORST_FIT"
    """The node with the largest free share of its capacity at the start: spreads."""
