"""One case of the ancestor's scheduler as the suites state it, and how an answer is settled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = "bai-cases/1"
_SUITE_FIELDS: Final = {"schema", "suite", "profile", "title", "cases"}
_CASE_FIELDS: Final = {
    "id", "origin", "op", "note", "input", "expect", "quirk", "better", "differs",
}  # fmt: skip
_PROFILES: Final = {"seed", "current", "seed+current"}
_ORIGINS: Final = {"upstream-test", "oracle-run", "read"}
_SCALE: Final = 1_000_000

Json = Any


class UnknownCase(AssertionError):
    """A suite, an operation or a field that no adapter knows: a failure, never a skip."""


@dataclass(frozen=True)
class Case:
    """One case; `quirk` and `differs` alone allow an answer other than `expect`."""

    suite: str
    profile: str
    id: str
    op: str
    input: Json
    expect: Json
    quirk: bool
    better: str
    differs: bool


@dataclass(frozen=True)
class Operation:
    """How one operation is asked of the core.

    `answer` translates the input into calls of the core and the answer back. `better` asserts,
    for a quirk, that the core does what the rule derived by hand demands. `agrees` compares where
    a suite abridges or allows several answers; otherwise the answer equals `expect`.
    """

    answer: Callable[[Json], Json]
    better: Callable[[Case], None] | None = None
    agrees: Callable[[Json, Json], None] | None = None


def read_suite(path: Path) -> list[Case]:
    """Return the cases of one file; anything in it that is not known fails."""
    suite = json.loads(path.read_text(encoding="utf-8"))
    known(suite, _SUITE_FIELDS)
    if suite["schema"] != SCHEMA or suite["profile"] not in _PROFILES:
        raise UnknownCase(f"{path.name}: {suite['schema']}, {suite['profile']}")
    cases = []
    for case in suite["cases"]:
        known(case, _CASE_FIELDS)
        if case["origin"] not in _ORIGINS:
            raise UnknownCase(f"{case['id']}: origin {case['origin']}")
        cases.append(
            Case(
                suite=suite["suite"],
                profile=suite["profile"],
                id=case["id"],
                op=case["op"],
                input=case["input"],
                expect=case["expect"],
                quirk=case.get("quirk", False),
                better=case.get("better", ""),
                differs=case.get("differs", False),
            )
        )
    return cases


def settle(case: Case, operations: Mapping[str, Operation]) -> None:
    """Assert that the core answers the case as expected, or better where it may."""
    if case.op not in operations:
        raise UnknownCase(f"{case.id}: operation {case.op}")
    operation = operations[case.op]
    if case.quirk:
        if operation.better is None:
            raise UnknownCase(f"{case.id}: no rule says how {case.op} is better: {case.better}")
        operation.better(case)
        return
    expect = case.expect["current"] if case.differs else case.expect
    answer = operation.answer(case.input)
    if operation.agrees is not None:
        operation.agrees(answer, expect)
        return

    assert answer == expect


def known(mapping: Mapping[str, Json], fields: set[str]) -> Mapping[str, Json]:
    """Return the mapping; a field that is not in `fields` fails."""
    beyond = set(mapping) - fields
    if beyond:
        raise UnknownCase(f"unknown fields: {', '.join(sorted(beyond))}")
    return mapping


def scaled(number: str | int) -> int:
    """Return a decimal as an integer of millionths, exactly."""
    amount = Decimal(str(number)) * _SCALE
    assert amount == int(amount), number
    return int(amount)


def amounts(slots: Mapping[str, str | int] | None) -> dict[str, int]:
    """Return amounts in millionths, the same unit for every kind."""
    return {kind: scaled(number) for kind, number in (slots or {}).items()}


def text(amount: int) -> str:
    """Return an amount of millionths as the suites print it."""
    whole, rest = divmod(abs(amount), _SCALE)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}" + (f".{rest:06d}".rstrip("0") if rest else "")


def texts(vector: Mapping[str, int]) -> dict[str, str]:
    """Return amounts of millionths as the suites print them."""
    return {kind: text(amount) for kind, amount in vector.items()}


def instant(moment: str) -> int:
    """Return an ISO instant in microseconds since 1970."""
    point = datetime.fromisoformat(moment)
    since = point - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
