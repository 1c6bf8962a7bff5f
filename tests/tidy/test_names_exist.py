"""What the documents name exists: files, and functions and classes in them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from tests.tidy.source_reasons import REPOSITORY

DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *sorted(str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "docs").glob("*.md")),
    *sorted(str(p.relative_to(REPOSITORY)) for p in (REPOSITORY / "services").glob("*/README.md")),
]
NAMED = re.compile(r"`([a-z0-9_.]+(?:/[A-Za-z0-9_.]+)+\.(?:py|sql|md|proto|toml))(?::(\w+))?`")
LINK = re.compile(r"\]\((?!http)([^)#]+)\)")


def located(document: str, name: str) -> Path | None:
    """Return the file that a document names, seen from the root, from a root of imports, or it."""
    here = (REPOSITORY / document).parent
    for folder in (REPOSITORY, REPOSITORY / "services", REPOSITORY / "libs", here):
        if (folder / name).is_file():
            return folder / name
    return None


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the functions, classes and constants of a module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(found)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_a_document_names_exists(document: str) -> None:
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    wrong = []
    for found in NAMED.finditer(text):
        path = located(document, found[1])
        if path is None or (found[2] and found[2] not in names_in(path)):
            wrong.append(found[0])
    assert wrong == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    path = REPOSITORY / document
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
