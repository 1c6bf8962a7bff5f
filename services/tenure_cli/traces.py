"""Makes the tree of one lease's trace from the spans that were stored.

Decides what belongs to a lease when its trace holds several (a batch, a CI run), and how spans are
arranged: children below their parent by their beginning, a cycle that a span is linked to below
that span. Printing is the command's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenure_runtime.telemetry.span_store import StoredSpan


@dataclass(frozen=True, slots=True)
class Branch:
    """A span with what lies below it; `cycles` are roots of other traces that it is linked to."""

    span: StoredSpan
    children: list[Branch] = field(default_factory=list)
    cycles: list[StoredSpan] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a tree: how deep it stands, and whether it shows another trace's root."""

    span: StoredSpan
    depth: int
    is_link: bool = False


def tree(spans: Sequence[StoredSpan], trace: str, lease: str) -> list[Branch]:
    """Return the roots of a trace; a span whose parent was not stored is one."""
    roots_of = {each.trace: each for each in spans if each.trace != trace and not each.parent}
    own = [each for each in spans if each.trace == trace and not _is_of_another(each, lease)]
    branches = {each.id: Branch(each) for each in sorted(own, key=_age)}
    top: list[Branch] = []
    for branch in branches.values():
        above = branches.get(branch.span.parent)
        (above.children if above is not None else top).append(branch)
        linked = {link[3:35] for link in branch.span.links}
        found = [roots_of[each] for each in linked if each in roots_of]
        branch.cycles.extend(sorted(found, key=_age))
    return top


def _age(span: StoredSpan) -> tuple[int, int]:
    return span.began_ns, -span.ended_ns


def _is_of_another(span: StoredSpan, lease: str) -> bool:
    facts = span.attributes
    # Leaders name groups of operations after the lease that they are for.
    named = facts.get("lease") or str(facts.get("group", "")).partition("/")[0]
    return bool(named) and named != lease


def lines(branches: Sequence[Branch], depth: int = 0) -> Iterator[Line]:
    """Yield the lines of a tree from top to bottom; a cycle is shown where it is met first."""
    shown: defaultdict[str, bool] = defaultdict(bool)
    waiting = [(branch, depth) for branch in reversed(branches)]
    while waiting:
        branch, at = waiting.pop()
        yield Line(branch.span, at)
        for cycle in branch.cycles:
            if not shown[cycle.trace]:
                shown[cycle.trace] = True
                yield Line(cycle, at + 1, is_link=True)
        waiting += [(child, at + 1) for child in reversed(branch.children)]


def as_json(branch: Branch) -> dict[str, Any]:
    """Return a branch for programs."""
    return {
        **_facts(branch.span),
        "links": [_facts(cycle) for cycle in branch.cycles],
        "children": [as_json(child) for child in branch.children],
    }


def _facts(span: StoredSpan) -> dict[str, Any]:
    return {
        "trace": span.trace,
        "span": span.id,
        "service": span.service,
        "name": span.name,
        "kind": span.kind,
        "began_ns": span.began_ns,
        "ended_ns": span.ended_ns,
        "failure": span.failure,
        "attributes": dict(span.attributes),
    }
