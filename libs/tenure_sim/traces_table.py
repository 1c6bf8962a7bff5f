"""Reads plain tables of leases: `lease,kind,submit,reqstart,req,run,nodes` with a header.

Times are in seconds, `kind` is BE or AR, `reqstart` is -1 for a lease that queues. The order of the
lines is that of arrival, ties in file order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import SECOND_MS, Millis
from tenure_sim.workload import BadLine, Workload

HEADER: Final = "lease,kind,submit,reqstart,req,run,nodes"


def parse_table(name: str, lines: Sequence[str], *, skip_bad: bool = False) -> Workload:
    """Make a workload of the lines; bad lines as in `swf.read_swf`."""
    rows: list[tuple[int, int, str, int | None, int, int, int]] = []
    bad: list[BadLine] = []
    seen: set[str] = set()
    for number, line in enumerate(lines[1:], 2):
        fields = line.strip().split(",")
        if fields == [""]:
            continue
        reason = _fault(fields) or (f"lease id {fields[0]} is used twice" * (fields[0] in seen))
        if reason:
            bad.append(BadLine(number, reason))
            continue
        seen.add(fields[0])
        submit, start, request, run, nodes = (int(text) for text in fields[2:])
        asked = start if fields[1] == "AR" else None
        rows.append((submit, number, fields[0], asked, request, min(run, request), nodes))
    if bad and not skip_bad:
        raise Invalid(
            [Violation(f"{name}:{entry.line}", "BAD_TRACE_LINE", entry.reason) for entry in bad],
            "BAD_TRACE",
        )
    rows.sort(key=lambda row: row[:2])
    starts: list[Millis | None] = [None if row[3] is None else row[3] * SECOND_MS for row in rows]
    return Workload(
        name,
        ids=[row[2] for row in rows],
        arrivals=[row[0] * SECOND_MS for row in rows],
        widths=[row[6] for row in rows],
        requests=[row[4] * SECOND_MS for row in rows],
        runs=[row[5] * SECOND_MS for row in rows],
        starts=starts if any(start is not None for start in starts) else None,
        bad=tuple(bad),
    )


def _fault(fields: list[str]) -> str:
    """Return what is wrong with a line, nothing when it is a lease."""
    if len(fields) != 7:
        return f"a lease has 7 fields, this line has {len(fields)}"
    if fields[1] not in ("AR", "BE"):
        return f"the kind is AR or BE, not {fields[1]!r}"
    for title, text in zip(HEADER.split(",")[2:], fields[2:], strict=True):
        if not text.lstrip("-").isdigit():
            return f"{title} is a whole number of seconds, not {text!r}"
    if min(int(text) for text in fields[4:]) <= 0:
        return "durations and nodes are positive"
    return ""
