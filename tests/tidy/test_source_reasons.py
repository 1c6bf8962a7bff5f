"""The reader of reasons finds them in every form in which code gives them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.tidy.source_reasons import found_in

FORMS = {
    'raise NotFound("A_REASON", "text", thing=1)': {"A_REASON"},
    'raise Invalid([Violation("field", "A_REASON", "text")], "OTHER")': {"A_REASON", "OTHER"},
    'def _end(lease, reason): ...\n_end(1, "A_REASON")': {"A_REASON"},
    'class Step:\n    lease: str\n    reason: str\nStep("x", "A_REASON")': {"A_REASON"},
    'Report(reason="A_REASON" if x else "OTHER")': {"A_REASON", "OTHER"},
    'response.reason = "A_REASON"': {"A_REASON"},
    'start, refusal = 1, "A_REASON"': {"A_REASON"},
    'WHY = "A_REASON"\nraise Stale(WHY, "text")': {"A_REASON"},
    'class Slow(Exhausted):\n    def __init__(self):\n        super().__init__("A_REASON", "x")': {
        "A_REASON"
    },
    'def say(reason: str = "A_REASON"): ...': {"A_REASON"},
    'print("NO_REASON")': set(),
    'words_of("NO_REASON")': set(),
    'METRIC.add(1, "NO_REASON")': set(),
}
ERRORS = """
class DomainError(Exception):
    def __init__(self, reason): ...
class NotFound(DomainError): ...
class Stale(DomainError): ...
class Exhausted(DomainError): ...
class Invalid(DomainError): ...
class Violation:
    field: str
    reason: str
class Violations:
    def add(self, field, reason): ...
"""


@pytest.mark.parametrize("code", FORMS)
def test_a_reason_is_found_in_each_form(code: str) -> None:
    parsed = ((Path("errors.py"), ast.parse(ERRORS)), (Path("some.py"), ast.parse(code)))
    assert set(found_in(parsed)) == FORMS[code]
