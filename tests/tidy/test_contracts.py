"""What contracts say of reasons is what services give; each contract says what it is for."""

from __future__ import annotations

import re

import pytest
from tests.tidy import source_reasons
from tests.tidy.source_reasons import REPOSITORY

PROTOS = sorted((REPOSITORY / "protos" / "tenure").glob("*/v1/*.proto"))
NO_REASONS = {
    "UUID",
    "SIGTERM",
    "SIGKILL",
    "SIGSTOP",
    "SIGCONT",
    "EASY",
    "AND",
    "MiB",
    "KiB",
    "UTC",
}


def named_reasons(text: str) -> set[str]:
    """Return the reasons that comments give after `Reasons:` or as examples of a stable code."""
    comments = " ".join(re.findall(r"//\s?([^\n]*)", text))
    found: set[str] = set()
    for said in re.findall(r"(?:Reasons|Stable code)[^.]*?(?:\.|$)", comments):
        found |= set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\bDRAINING\b", said))
    return found


@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.name)
def test_reasons_that_a_contract_names_are_given(path) -> None:  # type: ignore[no-untyped-def]
    unknown = named_reasons(path.read_text(encoding="utf-8")) - source_reasons.found().keys()
    assert sorted(unknown - NO_REASONS) == []


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in PROTOS}), ids=lambda path: path.parent.name
)
def test_each_contract_says_what_it_is_for(folder) -> None:  # type: ignore[no-untyped-def]
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith(f"# tenure.{folder.parent.name}.v1\n")
