"""Every invariant names its assertion, its checker and its test; they exist."""

from __future__ import annotations

import re

from tests.tidy.source_reasons import REPOSITORY
from tests.tidy.test_names_exist import NAMED, located, names_in

PROMISES = 10


def rows() -> list[list[str]]:
    text = (REPOSITORY / "docs" / "invariants.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_they_are_numbered_without_a_gap() -> None:
    numbers = [int(row[0]) for row in rows()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= PROMISES


def test_each_names_its_assertion_its_checker_and_its_test() -> None:
    for number, _, assertion, checker, test in rows():
        assert "`" in assertion, number
        assert "`" in checker, number
        tests = list(NAMED.finditer(test))
        assert tests, number
        for found in tests:
            path = located("docs/invariants.md", found[1])
            assert path is not None, found[0]
            assert path.name.startswith("test_"), found[0]
            assert found[2], f"{found[0]} names no test"
            assert found[2] in names_in(path), found[0]
