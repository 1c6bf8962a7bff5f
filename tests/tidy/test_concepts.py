"""The ways through the states that docs/concepts.md tells of are those of the table."""

from __future__ import annotations

import re
from itertools import pairwise

from tests.tidy.source_reasons import REPOSITORY

from tenure_core.leases.states import LeaseState, may_follow


def ways() -> list[tuple[LeaseState, ...]]:
    text = (REPOSITORY / "docs" / "concepts.md").read_text(encoding="utf-8")
    found = re.findall(r"[A-Z]{4,}(?: → [A-Z]{4,})+", text)
    return [tuple(LeaseState(name) for name in way.split(" → ")) for way in found]


def test_each_way_that_the_concepts_tell_is_possible() -> None:
    told = [step for way in ways() for step in pairwise(way)]
    assert len(told) > 10
    assert [
        (before.name, after.name) for before, after in told if not may_follow(before, after)
    ] == []
