"""The document that says what became of the ancestor's rules names what exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

from tenure_core.admission import predicates

REPOSITORY = Path(__file__).resolve().parents[4]
DOCUMENT = (REPOSITORY / "docs/backendai-rules.md").read_text(encoding="utf-8")
MODULES = {path.stem for path in (REPOSITORY / "libs/tenure_core/admission").glob("*.py")}
HERE = Path(__file__).parent


def _rule_rows() -> list[list[str]]:
    section = DOCUMENT.split("## Rules")[1].split("## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip("| ") for cell in row] for row in rows[1:]]


def _is_method(module: ModuleType, name: str) -> bool:
    return any(name in vars(entry) for entry in vars(module).values() if isinstance(entry, type))


def test_every_module_that_the_document_names_exists() -> None:
    for row in _rule_rows():
        named = re.findall(r"`(\w+)(?:\.(\w+))?`", row[2])
        assert named or row[2] == "–", row
        for module, member in named:
            found = import_module(f"tenure_core.admission.{module}")
            assert not member or member in vars(found) or _is_method(found, member), row


def test_every_module_with_a_rule_is_named_by_the_document() -> None:
    unnamed = {name for name in MODULES if not re.search(rf"`{name}[`.]", DOCUMENT)}

    assert unnamed == {"__init__", "nodes", "waiting"}


def test_every_test_that_the_document_names_exists() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py"))
    names = re.findall(r"`(test_[a-z0-9_]+)(…?)`", DOCUMENT)

    assert len(names) > 30
    for name, cut in names:
        end = "" if cut else r"\b"
        assert re.search(f"def {name}{end}", tests) or (HERE / f"{name}.py").is_file(), name


def test_every_reason_that_the_predicates_give_is_in_the_document() -> None:
    source = Path(predicates.__file__).read_text(encoding="utf-8")
    reasons = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)+)"', source))
    rules = {rule.value for rule in predicates.Rule}

    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", DOCUMENT, re.MULTILINE))
    assert reasons - rules == listed
