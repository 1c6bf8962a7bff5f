"""The rendered chart, as reviewers last saw it. TENURE_SNAPSHOTS=write takes what it is now."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parent / "snapshots"


def masked(text: str) -> str:
    """Return a text without what is random."""
    text = re.sub(r"tnr_([a-z0-9.-]+)_[A-Za-z0-9]{43}", r"tnr_\1_SECRET", text)
    text = re.sub(r"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----", r"PEM \1", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "SHA256", text)
    text = re.sub(r'"password": "[A-Za-z0-9]{32}"', '"password": "PASSWORD"', text)
    return re.sub(r"//tenure:[A-Za-z0-9]{32}@", "//tenure:PASSWORD@", text)


@pytest.mark.parametrize("case", ["given-secrets", "trial", "everything"])
def test_the_chart_is_what_it_was(rendered, case):
    now = masked(json.dumps(rendered[case]["objects"], indent=1, sort_keys=True)) + "\n"
    file = SNAPSHOTS / f"{case}.json"
    if os.environ.get("TENURE_SNAPSHOTS") == "write":
        file.write_text(now, encoding="utf-8")
    assert now == file.read_text(encoding="utf-8"), "`git diff tests/helm/snapshots` after a write"
