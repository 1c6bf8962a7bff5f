"""What docs/sdk.md shows is what happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "sdk.md"


def test_every_example_of_the_page_does_what_it_shows(suite, monkeypatch):
    monkeypatch.setenv("TENURE_DATA", str(suite.folder))
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```pycon\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "sdk.md", str(PAGE), 0)
    assert len(examples.examples) > 25
    report: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert outcome.failed == 0, "".join(report)
