"""Finds every reason in the sources: what errors, violations, verdicts and leases may carry.

A reason is an UPPER_SNAKE text that is given to a parameter, field or attribute called `reason`, to
`rule` of a decision, to `refusal`, or that is the first argument of a `DomainError`. Which
parameters those are is read from the sources too, so that a new function with a `reason` is covered
from its first day. What a few functions return is a reason as well: they are named below.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = (
    "libs/tenure/client",
    "libs/tenure_core",
    "libs/tenure_runtime",
    "libs/tenure_sim",
    "services",
)
REASON = re.compile(r"[A-Z][A-Z0-9_]{2,62}")
NAMES = ("reason", "rule", "refusal", "_reason", "_rule")
RETURNING = {"after_command", "_accept", "_start_refusal", "_rule"}
"""Functions that return a reason, alone or first in a tuple; a test sees to it that they exist."""

SPEAKING = {"words_of"}
"""Functions that only turn a reason into words."""

Parsed = tuple[tuple[Path, ast.Module], ...]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Return every module of the sources that are written by hand, parsed once a test run."""
    return tuple(
        (path.relative_to(REPOSITORY), ast.parse(path.read_text(encoding="utf-8")))
        for root in ROOTS
        for path in sorted((REPOSITORY / root).rglob("*.py"))
    )


@cache
def found() -> dict[str, set[str]]:
    """Return each reason with the modules that give it."""
    return found_in(modules())


def found_in(parsed: Parsed) -> dict[str, set[str]]:
    """Return each reason in the modules given."""
    positions = _positions(parsed)
    errors = _error_classes(parsed)
    constants = _constants(parsed)
    reasons: dict[str, set[str]] = defaultdict(set)
    for path, tree in parsed:
        for node in ast.walk(tree):
            for value in _given(node, positions, errors):
                for text in _texts(value, constants):
                    reasons[text].add(str(path))
    return reasons


def raised() -> dict[str, tuple[set[str], set[str]]]:
    """Return for each reason the kinds of error that carry it, and their metadata keys."""
    parsed = modules()
    errors, constants = _error_classes(parsed), _constants(parsed)
    facts: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for _, tree in parsed:
        for node in ast.walk(tree):
            kind = _name(node.func) if isinstance(node, ast.Call) else ""
            if not isinstance(node, ast.Call) or kind not in errors or kind == "DomainError":
                continue
            for value in node.args[1:2] if kind == "Invalid" else node.args[:1]:
                for text in _texts(value, constants):
                    facts[text][0].add(kind)
                    facts[text][1].update(k.arg for k in node.keywords if k.arg)
    for _, metadata in facts.values():
        metadata.discard("retry_after_ms")
    return facts


def _positions(parsed: Parsed) -> dict[str, set[int]]:
    """Return for each function or class the positions at which a reason is given."""
    positions: dict[str, set[int]] = defaultdict(set)
    for _, tree in parsed:
        for node in ast.walk(tree):
            if isinstance(node, Function):
                names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
                if names[:1] in (["self"], ["cls"]):
                    names = names[1:]
                positions[node.name] |= {i for i, name in enumerate(names) if name in NAMES}
            elif isinstance(node, ast.ClassDef):
                fields = [
                    item.target.id
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                ]
                positions[node.name] |= {i for i, name in enumerate(fields) if name in NAMES}
    return {name: where for name, where in positions.items() if where}


def _error_classes(parsed: Parsed) -> set[str]:
    """Return the names of DomainError and of everything that derives from it."""
    known = {"DomainError"}
    while True:
        more = {
            node.name
            for _, tree in parsed
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and any(isinstance(base, ast.Name) and base.id in known for base in node.bases)
        }
        if more <= known:
            return known
        known |= more


def _constants(parsed: Parsed) -> dict[str, str]:
    """Return the texts of module constants, by name."""
    constants: dict[str, str] = {}
    for _, tree in parsed:
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                target, value = node.target.id, node.value
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                target, value = node.targets[0].id, node.value
            else:
                continue
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                constants[target] = value.value
    return constants


def _given(node: ast.AST, positions: dict[str, set[int]], errors: set[str]) -> Iterator[ast.expr]:
    if isinstance(node, Function):
        yield from _defaults(node)
        if node.name in RETURNING:
            yield from _returned(node)
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        if node.target.id in NAMES and node.value is not None:
            yield node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            for name, value in zip(names, values, strict=False):
                if isinstance(name, ast.Name | ast.Attribute) and _name(name) in NAMES:
                    yield value
    if not isinstance(node, ast.Call):
        return
    called = _name(node.func)
    if called in SPEAKING or _counts(node.func):
        return
    for keyword in node.keywords:
        if keyword.arg in NAMES:
            yield keyword.value
    if called in errors and called != "Invalid" and node.args:
        yield node.args[0]
    if called == "Invalid":
        yield from node.args[1:2]
    if called == "__init__" and node.args:  # super().__init__ of an error with a fixed reason
        yield node.args[0]
    for position in positions.get(called, ()):
        if position < len(node.args):
            yield node.args[position]


def _returned(node: Function) -> Iterator[ast.expr]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Return) and inner.value is not None:
            yield inner.value.elts[0] if isinstance(inner.value, ast.Tuple) else inner.value


def _defaults(node: Function) -> Iterator[ast.expr]:
    arguments = [*node.args.posonlyargs, *node.args.args]
    for argument, default in zip(reversed(arguments), reversed(node.args.defaults), strict=False):
        if argument.arg in NAMES:
            yield default
    for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if argument.arg in NAMES and value is not None:
            yield value


def _counts(called: ast.expr) -> bool:
    """Say whether this is `SOME_METRIC.add(...)`: its labels are no reasons."""
    return isinstance(called, ast.Attribute) and _name(called.value).isupper()


def _name(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""


def _texts(value: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    """Yield the reasons that an expression may come to, where that can be read from it."""
    match value:
        case ast.Constant(value=str(text)) if REASON.fullmatch(text):
            yield text
        case ast.Name(id=name) if name in constants and REASON.fullmatch(constants[name]):
            yield constants[name]
        case ast.IfExp(body=one, orelse=other):
            yield from _texts(one, constants)
            yield from _texts(other, constants)
        case ast.BoolOp(values=values):
            for each in values:
                yield from _texts(each, constants)
        case _:
            return
