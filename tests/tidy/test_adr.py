"""Decisions are numbered once and say what they must."""

from __future__ import annotations

import re

import pytest
from tests.tidy import decisions

DECISIONS = sorted(decisions.FOLDER.glob("0*.md"))
PARTS = ("Context", "Decision")


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_what_it_must(path) -> None:  # type: ignore[no-untyped-def]
    text = path.read_text(encoding="utf-8")
    headings = set(re.findall(r"^(?:## |\*\*)(\w+)", text, re.MULTILINE))
    assert set(PARTS) <= headings, headings
    if not path.name.startswith("0000"):
        assert re.match(rf"# (?:ADR )?0*{int(path.name[:4])}\b", text), text[:60]


def test_numbers_are_given_once() -> None:
    numbers = [re.match(r"\d{4}", path.name) for path in DECISIONS]
    assert all(numbers)
    given = [found[0] for found in numbers if found]
    assert sorted({number for number in given if given.count(number) > 1}) == []


def test_the_list_of_decisions_is_current() -> None:
    """When this fails: `python -m tests.tidy.decisions`."""
    assert decisions.INDEX.read_text(encoding="utf-8") == decisions.markdown()
