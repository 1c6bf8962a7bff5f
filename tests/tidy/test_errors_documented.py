"""Every reason that the sources can give stands in docs/errors.md, and none stands only there."""

from __future__ import annotations

import ast
import re

from tests.tidy import source_reasons
from tests.tidy.source_reasons import REPOSITORY

from tenure_core import errors
from tenure_runtime.rpc.status import CODE_OF_KIND

ROW = re.compile(r"^\| `([A-Z][A-Z0-9_]+)` \|", re.MULTILINE)


def documented() -> list[str]:
    return ROW.findall((REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8"))


def test_every_reason_is_documented() -> None:
    """Whoever meets a reason must find what to do about it."""
    given = source_reasons.found()
    missing = {reason: sorted(given[reason]) for reason in given.keys() - set(documented())}
    assert missing == {}, "give each a row in docs/errors.md"


def test_no_reason_is_documented_that_nobody_gives() -> None:
    assert sorted(set(documented()) - source_reasons.found().keys()) == []


def test_rows_name_the_kinds_and_the_metadata_that_errors_have() -> None:
    """A caller decides by the kind, and reads the metadata by these keys."""
    text = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    row_of = {found[1]: text[found.start() :].partition("\n")[0] for found in ROW.finditer(text)}
    wrong = {}
    for reason, (kinds, metadata) in source_reasons.raised().items():
        missing = {name for name in kinds | metadata if name not in row_of.get(reason, "")}
        if missing:
            wrong[reason] = sorted(missing)
    assert wrong == {}


def test_no_reason_is_documented_twice() -> None:
    rows = documented()
    assert sorted({reason for reason in rows if rows.count(reason) > 1}) == []


def test_the_table_of_kinds_is_the_one_in_use() -> None:
    text = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    for kind, code in CODE_OF_KIND.items():
        assert f"| {kind.__name__} | {code.name}" in text, kind
    assert set(CODE_OF_KIND) == set(errors.DomainError.__subclasses__()) - {
        kind for kind in errors.DomainError.__subclasses__() if kind.__module__ != errors.__name__
    }


def test_the_functions_that_are_said_to_return_reasons_exist() -> None:
    """A renamed one would silently no longer be read."""
    names = {
        node.name
        for _, tree in source_reasons.modules()
        for node in ast.walk(tree)
        if isinstance(node, source_reasons.Function)
    }
    assert names >= source_reasons.RETURNING | source_reasons.SPEAKING


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    from tenure_cli.failures import EXIT_CODES

    text = (REPOSITORY / "docs" / "errors.md").read_text(encoding="utf-8")
    table = text.partition("### Exit codes")[2]
    for kind, code in EXIT_CODES.items():
        row = next(line for line in table.splitlines() if line.startswith(f"| {code} |"))
        assert kind.__name__ in row
