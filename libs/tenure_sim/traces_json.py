"""Reads and writes our own trace format: JSON, one object a line, so that every fault has a line.

The first line says what it is: `{"format":"tenure-trace","version":1,"name":...}`, with the site if
one belongs to it. Each further line is a lease: `id`, `arrival_ms`, `duration_ms`, `slots` and
`amounts` (base units, as everywhere in Tenure) are required; `run_ms` (default: the duration),
`cancel_ms` (when its owner gives it up), `owner`, `project`, `priority`, `preemptible`, `spread`,
`selector`, `labels`, `image` are not. When it is wanted: `start_ms` exactly then, `deadline_ms`
with or without `earliest_ms`, `immediate`, or none of them for a place in the queue. A site is
`{"nodes": [{"count", "amounts", "attributes", "name"}]}`; amounts of a site may also be written as
people write them (`"16Gi"`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TextIO

from tenure_core.errors import Invalid, Violation
from tenure_core.leases.lease import (
    Advance,
    BestEffort,
    Deadline,
    Immediate,
    LeaseSpec,
    Terms,
    Work,
)
from tenure_sim.site import Site
from tenure_sim.traces_json_fields import Fault, amounts_of, flag, text_of, whole, words_of
from tenure_sim.traces_json_site import site_as_json, site_of
from tenure_sim.workload import BadLine, SimLease, Workload

FORMAT: Final = "tenure-trace"
_NUMBERS: Final = ("start_ms", "deadline_ms", "earliest_ms")
_KNOWN: Final = frozenset(
    {"id", "arrival_ms", "duration_ms", "run_ms", "slots", "amounts", "owner", "project"}
    | {"priority", "preemptible", "spread", "selector", "labels", "image", "immediate"}
    | {"cancel_ms", *_NUMBERS}
)


def parse_json(
    name: str, lines: Iterable[str], *, skip_bad: bool = False
) -> tuple[Workload, Site | None]:
    """Make a workload of the lines, and the site that the first line brings if any."""
    leases: list[SimLease] = []
    bad: list[BadLine] = []
    seen: set[str] = set()
    title, site, is_first = name, None, True
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = _object(line)
            if is_first:
                title, site = _header(entry, name)
                is_first = False
                continue
            lease = _lease(entry, seen)
        except Fault as fault:
            if is_first:
                raise _refused(name, [BadLine(number, str(fault))]) from None
            bad.append(BadLine(number, str(fault)))
            continue
        seen.add(lease.id)
        leases.append(lease)
    if is_first:
        raise _refused(name, [BadLine(1, "the file is empty")])
    if bad and not skip_bad:
        raise _refused(name, bad)
    return replace(Workload.of(title, leases), bad=tuple(bad)), site


def write_json(workload: Workload, out: TextIO, *, site: Site | None = None) -> None:
    """Write a workload as a trace of our own, with its site where one is given."""
    header: dict[str, Any] = {"format": FORMAT, "version": 1, "name": workload.name}
    if site is not None:
        header["site"] = site_as_json(site)
    _write_line(header, out)
    for index in range(len(workload)):
        _write_line(_entry(workload, index), out)


def _write_line(value: Mapping[str, Any], out: TextIO) -> None:
    out.write(json.dumps(value, separators=(",", ":"), ensure_ascii=False) + "\n")


def _entry(workload: Workload, index: int) -> dict[str, Any]:
    spec = workload.spec(index)
    entry: dict[str, Any] = {
        "id": workload.ids[index],
        "arrival_ms": workload.arrivals[index],
        "duration_ms": spec.duration_ms,
        "run_ms": workload.runs[index],
        "slots": spec.node_count,
        "amounts": dict(spec.amounts),
        "owner": spec.owner,
        "project": spec.project,
    }
    match spec.terms:
        case Advance(start=start):
            entry["start_ms"] = start
        case Deadline(deadline=deadline, earliest_start=earliest):
            entry["deadline_ms"] = deadline
            if earliest is not None:
                entry["earliest_ms"] = earliest
        case Immediate():
            entry["immediate"] = True
        case BestEffort():
            pass
    more = {
        "priority": spec.priority,
        "spread": spec.spread,
        "selector": dict(spec.node_selector),
        "labels": dict(spec.labels),
        "image": spec.work.image,
    }
    entry.update({key: value for key, value in more.items() if value})
    if workload.cancels is not None and workload.cancels[index] is not None:
        entry["cancel_ms"] = workload.cancels[index]
    if not spec.preemptible:
        entry["preemptible"] = False
    return entry


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise Fault(f"this is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Fault("this is not a JSON object")
    return value


def _header(entry: dict[str, Any], name: str) -> tuple[str, Site | None]:
    if entry.get("format") != FORMAT or entry.get("version") != 1:
        raise Fault(f'the first line says {{"format":"{FORMAT}","version":1}}')
    site = site_of(entry["site"]) if "site" in entry else None
    return str(entry.get("name", name)), site


def _lease(entry: dict[str, Any], seen: set[str]) -> SimLease:
    name = text_of(entry, "id")
    if name in seen:
        raise Fault(f"lease id {name} is used twice")
    unknown = sorted(set(entry) - _KNOWN)
    if unknown:
        raise Fault(f"a lease has no field {unknown[0]!r}")
    duration = whole(entry, "duration_ms", least=1)
    spec = LeaseSpec(
        owner=text_of(entry, "owner", "unknown"),
        project=text_of(entry, "project", "trace"),
        pool="sim",
        terms=_terms(entry),
        node_count=whole(entry, "slots", least=1),
        amounts=amounts_of(entry.get("amounts")),
        duration_ms=duration,
        priority=whole(entry, "priority", 0, least=-(2**31)),
        preemptible=flag(entry, "preemptible", default=True),
        work=Work(image=text_of(entry, "image", "")),
        labels=words_of(entry, "labels"),
        node_selector=words_of(entry, "selector"),
        spread=flag(entry, "spread", default=False),
    )
    run = min(whole(entry, "run_ms", duration, least=1), duration)
    cancel = whole(entry, "cancel_ms") if entry.get("cancel_ms") is not None else None
    return SimLease(name, whole(entry, "arrival_ms"), spec, run, cancel)


def _terms(entry: dict[str, Any]) -> Terms:
    start, deadline, earliest = (
        whole(entry, key) if entry.get(key) is not None else None for key in _NUMBERS
    )
    immediate = flag(entry, "immediate", default=False)
    if (start is not None) + (deadline is not None) + immediate > 1:
        raise Fault("start_ms, deadline_ms and immediate exclude one another")
    if earliest is not None and deadline is None:
        raise Fault("earliest_ms goes with deadline_ms")
    if immediate:
        return Immediate()
    if start is not None:
        return Advance(start)
    return BestEffort() if deadline is None else Deadline(deadline, earliest)


def _refused(name: str, bad: list[BadLine]) -> Invalid:
    return Invalid(
        [Violation(f"{name}:{entry.line}", "BAD_TRACE_LINE", entry.reason) for entry in bad],
        "BAD_TRACE",
    )
