"""docs/telemetry.md names the spans, metrics and log events that exist, and no others."""

from __future__ import annotations

import re

import pytest
from tests.tidy import source_telemetry
from tests.tidy.source_reasons import REPOSITORY

SECTIONS = {
    "Spans": source_telemetry.spans,
    "Metrics": source_telemetry.instruments,
    "Log events": source_telemetry.log_events,
}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_is_true(section: str) -> None:
    text = (REPOSITORY / "docs" / "telemetry.md").read_text(encoding="utf-8")
    body = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `([a-z_.]+)` \|", body, re.MULTILINE)
    assert sorted(shown) == sorted(SECTIONS[section]())
