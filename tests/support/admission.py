"""Builders for the admission rules: a lease that waits, a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure_core.admission.nodes import Node
from tenure_core.admission.waiting import Member, WaitingLease


def a_lease(
    name: str = "l1",
    *,
    owner: str = "ann",
    amounts: Mapping[str, int] | None = None,
    members: int = 1,
    **terms: Any,
) -> WaitingLease:
    """Return a waiting lease of `members` equal members, one cpu each unless said otherwise."""
    asked = {"cpu": 1} if amounts is None else amounts
    terms.setdefault("project", "p")
    terms.setdefault("domain", "d")
    return WaitingLease(
        id=name, owner=owner, members=tuple(Member(asked) for _ in range(members)), **terms
    )


def a_node(name: str = "n1", *, taken: Mapping[str, int] | None = None, **capacity: int) -> Node:
    """Return a node with this capacity."""
    return Node(name, capacity, taken or {})
