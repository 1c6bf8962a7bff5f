"""Reads traces in the Standard Workload Format (Feitelson, Parallel Workloads Archive).

Lines that start with `;` are comments; a job is 18 blank-separated numbers, -1 for unknown. Of
these count: 1 job id, 2 submit, 4 run time, 5 processors given, 8 processors asked for, 9 time
asked for, 12 user, in seconds. How a job is made of them:

1. width = field 8 if positive, else field 5; a job without width or wider than the machine is left
   out;
2. a job that did not run is left out;
3. request = field 9 if positive, else the run time;
4. a run time above the request is cut to it (the machine kills at the limit);
5. jobs are sorted by submit time, ties in file order.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import SECOND_MS
from tenure_sim.workload import BadLine, Workload

_FIELDS = 18
_SUBMIT = re.compile(r"[ \t]*[^;\s]\S*[ \t]+(\d+)[ \t].*\n?")


def read_swf(
    path: Path, *, processors: int, first: int | None = None, skip_bad: bool = False
) -> Workload:
    """Read a trace file, gzipped when its name ends in `.gz`, for a machine of `processors`.

    `first` keeps so many jobs after sorting; lines that come too late to be among them are read
    only as far as their submit time. A line that is no job raises Invalid with its number
    and what is wrong; with `skip_bad` it is left out and listed in the workload's `bad`.
    """
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    name = path.name.removesuffix(".gz").removesuffix(".swf")
    lines = text.decode("utf-8", errors="replace")
    return parse_swf(name, lines, processors=processors, first=first, skip_bad=skip_bad)


def parse_swf(
    name: str,
    lines: Iterable[str] | str,
    *,
    processors: int,
    first: int | None = None,
    skip_bad: bool = False,
) -> Workload:
    """Make a workload of the lines of a trace, or of its text; see `read_swf`."""
    text = lines if isinstance(lines, str) else None
    jobs: list[tuple[int, int, str, int, int, int, str]] = []
    bad: list[BadLine] = []
    left_out = 0
    room = first if first is not None else -1
    latest: int | None = None
    offset = 0
    for number, line in enumerate(lines if text is None else _split(text), 1):
        offset += len(line) + 1
        if latest is not None and _is_later(line, latest):
            continue
        fields = line.split()
        if not fields or fields[0][0] == ";":
            continue
        try:
            submit, run, width = int(fields[1]), int(fields[3]), int(fields[7])
            if width <= 0:
                width = int(fields[4])
            request = int(fields[8])
            whole = len(fields) == _FIELDS
        except (ValueError, IndexError):
            whole = False
        if not whole:
            reason = _fault(fields)
            if reason is not None:
                bad.append(BadLine(number, reason))
                continue
            submit, run, width, request = _numbers(fields)
        if not 0 < width <= processors or run <= 0:
            left_out += 1
            continue
        if request <= 0:
            request = run
        jobs.append((submit, number, fields[0], width, request, min(run, request), fields[11]))
        if len(jobs) == room:
            latest = max(job[0] for job in jobs)
            if text is not None and _all_later(text, offset, latest):
                break
    if bad and not skip_bad:
        raise Invalid(
            [Violation(f"{name}:{entry.line}", "BAD_TRACE_LINE", entry.reason) for entry in bad],
            "BAD_TRACE",
        )
    jobs.sort()
    del jobs[first if first is not None else len(jobs) :]
    return Workload(
        name,
        ids=[job[2] for job in jobs],
        arrivals=[job[0] * SECOND_MS for job in jobs],
        widths=[job[3] for job in jobs],
        requests=[job[4] * SECOND_MS for job in jobs],
        runs=[job[5] * SECOND_MS for job in jobs],
        bad=tuple(bad),
        owners=["unknown" if job[6] == "-1" else job[6] for job in jobs],
        left_out=left_out,
    )


def _split(text: str) -> Iterator[str]:
    """Return the lines one by one: a trace may be left long before its end."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


def _all_later(text: str, offset: int, latest: int) -> bool:
    """Say whether every line from `offset` on is a job submitted at `latest` or after."""
    submits = _SUBMIT.findall(text, offset)
    lines = text.count("\n", offset) + (not text.endswith("\n"))
    return len(submits) == lines and (not submits or min(map(int, submits)) >= latest)


def _is_later(line: str, latest: int) -> bool:
    """Say whether the line is a job submitted at `latest` or after, whatever else it says."""
    try:
        return int(line.split(None, 2)[1]) >= latest
    except (ValueError, IndexError):
        return False


def _fault(fields: list[str]) -> str | None:
    """Return what is wrong with a line, None when it can be read all the same (fractions)."""
    if len(fields) != _FIELDS:
        return f"a job has {_FIELDS} fields, this line has {len(fields)}"
    for index, text in enumerate(fields, 1):
        try:
            number = float(text)
        except ValueError:
            return f"field {index} is {text!r}, not a number"
        if number != number or abs(number) == float("inf"):
            return f"field {index} is {text!r}, not a finite number"
    return None


def _numbers(fields: list[str]) -> tuple[int, int, int, int]:
    submit, run = int(float(fields[1])), int(float(fields[3]))
    width = int(float(fields[7]))
    if width <= 0:
        width = int(float(fields[4]))
    return submit, run, width, int(float(fields[8]))
