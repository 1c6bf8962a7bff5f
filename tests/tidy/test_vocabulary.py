"""The words that docs/vocabulary.md says we do not use stand in no contract and no public name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source_reasons import REPOSITORY, modules

BANNED = {
    *("box", "calendar", "evict", "eviction", "host", "hosts", "job", "jobs", "keepalive", "kick"),
    *("ticket", "tickets"),
}
"""Each a word of its own inside a name. What has two meanings is left to readers."""

OTHER_WORLDS = (
    "libs/tenure_core/autoscaling/",  # the ancestor's applications have jobs
    "libs/tenure_core/admission/",  # held to another system's words by docs/backendai-rules.md
    "libs/tenure_core/policies/placement.py",  # `host_selection` is the name of the papers
)


def words(name: str) -> set[str]:
    """Return the words of a snake_case or CamelCase name."""
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return {word.lower() for word in parted.split("_") if word}


def proto_names() -> Iterator[tuple[str, str]]:
    for path in sorted((REPOSITORY / "protos").rglob("*.proto")):
        if path.parts[-3] == "etcd":
            continue  # another project's contract
        code = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
        for name in re.findall(r"\b(?:message|enum|service|rpc|oneof)\s+(\w+)", code):
            yield path.name, name
        for name in re.findall(r"\b(\w+)\s*=\s*\d+", code):
            yield path.name, name


def public_names(*, elsewhere: tuple[str, ...] = OTHER_WORLDS) -> Iterator[tuple[str, str]]:
    for path, tree in modules():
        if str(path).startswith(elsewhere):
            continue
        yield str(path), path.stem
        for node in ast.walk(tree):
            defines = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if defines and not node.name.startswith("_"):
                yield str(path), node.name


def test_contracts_use_our_words() -> None:
    assert [found for found in proto_names() if words(found[1]) & BANNED] == []


def test_public_names_use_our_words() -> None:
    assert [found for found in public_names() if words(found[1]) & BANNED] == []


def test_names_are_taken_apart_into_words() -> None:
    assert words("JobQueue") == {"job", "queue"}
    assert words("next_job_id") == {"next", "job", "id"}
    assert not words("jobless") & BANNED


def test_every_other_world_is_one() -> None:
    """An exception that is not needed any more hides the next breach."""
    breaches = [path for path, name in public_names(elsewhere=()) if words(name) & BANNED]
    unneeded = [w for w in OTHER_WORLDS if not any(path.startswith(w) for path in breaches)]
    assert unneeded == []
