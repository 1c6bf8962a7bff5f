"""Reads the old text form of Haizea's lease workload format: one reservation a line.

`arrival start duration real_duration nodes cpu memory disk image image_size`, blank-separated, in
seconds; `start` is absolute, negative for a best-effort lease. What it asks of a node beyond being
one slot is not used.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import SECOND_MS, Millis
from tenure_sim.workload import BadLine, Workload

_FIELDS = 10


def read_lwf_text(path: Path, *, skip_bad: bool = False) -> Workload:
    """Read a file, gzipped when its name ends in `.gz`; bad lines as in `swf.read_swf`."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    name = path.name.removesuffix(".gz").removesuffix(".lwf")
    return parse_lwf_text(name, text.decode("utf-8").split("\n"), skip_bad=skip_bad)


def parse_lwf_text(name: str, lines: Iterable[str], *, skip_bad: bool = False) -> Workload:
    """Make a workload of the lines, sorted by arrival with ties in file order."""
    rows: list[tuple[int, int, int, int, int, int]] = []
    bad: list[BadLine] = []
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != _FIELDS:
            bad.append(BadLine(number, f"a lease has {_FIELDS} fields, not {len(fields)}"))
            continue
        try:
            arrival, start, duration, real, nodes = (int(text) for text in fields[:5])
        except ValueError:
            bad.append(BadLine(number, "the first five fields are whole numbers"))
            continue
        if duration <= 0 or real <= 0 or nodes <= 0:
            bad.append(BadLine(number, "durations and nodes are positive"))
            continue
        rows.append((arrival, number, start, duration, min(real, duration), nodes))
    if bad and not skip_bad:
        raise Invalid(
            [Violation(f"{name}:{entry.line}", "BAD_TRACE_LINE", entry.reason) for entry in bad],
            "BAD_TRACE",
        )
    rows.sort()
    starts: list[Millis | None] = [None if row[2] < 0 else row[2] * SECOND_MS for row in rows]
    return Workload(
        name,
        ids=[str(row[1]) for row in rows],
        arrivals=[row[0] * SECOND_MS for row in rows],
        widths=[row[5] for row in rows],
        requests=[row[3] * SECOND_MS for row in rows],
        runs=[row[4] * SECOND_MS for row in rows],
        starts=starts if any(start is not None for start in starts) else None,
        bad=tuple(bad),
    )


def merged(name: str, queue: Workload, reservations: Workload) -> Workload:
    """Return both as one: the queue shifted to begin at 0, reservations that come until its end.

    At equal times the queue's leases come first; the reservations' ids get an `r` in front.
    """
    shift = queue.arrivals[0] if len(queue) else 0
    last = queue.arrivals[-1] - shift if len(queue) else 0
    entries = [(queue.arrivals[i] - shift, 0, i) for i in range(len(queue))]
    entries += [
        (arrival, 1, i) for i, arrival in enumerate(reservations.arrivals) if arrival <= last
    ]
    entries.sort()
    sources = (queue, reservations)
    booked = reservations.starts
    return Workload(
        name,
        ids=[("", "r")[which] + sources[which].ids[i] for _, which, i in entries],
        arrivals=[at for at, _, _ in entries],
        widths=[sources[which].widths[i] for _, which, i in entries],
        requests=[sources[which].requests[i] for _, which, i in entries],
        runs=[sources[which].runs[i] for _, which, i in entries],
        starts=[booked[i] if which and booked is not None else None for _, which, i in entries],
    )
