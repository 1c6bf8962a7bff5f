"""The table of properties in the documentation and the tests say the same."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
RULES = Path(__file__).resolve().parents[4] / "docs" / "autoscaler-rules.md"


def test_every_property_has_the_tests_that_the_documentation_names() -> None:
    """P01 to P30 each have a test, in exactly the files that the table lists."""
    named = {
        path.stem: {f"P{number}" for number in re.findall(r"def test_p(\d\d)_", path.read_text())}
        for path in HERE.glob("test_*.py")
    }
    rows = re.findall(r"(?m)^\| (P\d\d) \| [^|]*\| ([^|]*) \|", RULES.read_text())
    documented = {number: set(re.findall(r"`(test_\w+)`", files)) for number, files in rows}

    assert sorted(documented) == [f"P{number:02}" for number in range(1, 31)]
    assert documented == {
        number: {stem for stem, numbers in named.items() if number in numbers}
        for number in documented
    }
