"""Reads golden schedules of independent simulators, and runs the same input through ours."""

from __future__ import annotations

import csv
import gzip
import re
from dataclasses import dataclass
from pathlib import Path

from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.timebase import SECOND_MS
from tenure_sim.counting import simulate_counted
from tenure_sim.swf import read_swf
from tenure_sim.workload import Workload

_JOBS = re.compile(r"(?P<trace>.+)\.n(?P<count>\d+)\.(?P<policy>fcfs|easy|cons)\.csv\.gz")
_LEASES = re.compile(r"lease-(?P<trace>.+)\.(?P<policy>none|easy|depth4|cons)\.csv\.gz")
_BACKFILLING = {
    "fcfs": Backfilling.OFF,
    "none": Backfilling.OFF,
    "easy": Backfilling.EASY,
    "depth4": Backfilling.intermediate(4),
    "cons": Backfilling.CONSERVATIVE,
}
_TRACES = {
    "lublin_256": "lublin_256.swf.gz",
    "lublin_256_new2": "lublin_256_new2.swf.gz",
    "SDSC-SP2": "SDSC-SP2-1998-4.2-cln.swf.gz",
    "NASA-iPSC": "NASA-iPSC-1993-3.1-cln.swf.gz",
    "hpc2n-subset": "hpc2n-alea-subset.swf.gz",
}


@dataclass(frozen=True)
class Golden:
    """One golden file: what to run, and what must come out, row by row."""

    name: str
    trace: str
    policies: Policies
    machine: int
    count: int | None
    rows: list[tuple[str, ...]]

    @property
    def of_leases(self) -> bool:
        return self.count is None


def golden_files(folder: Path) -> list[Path]:
    """Return every schedule in the folder; a file of an unknown kind is an error."""
    known = {"README.md", "SHA256SUMS", "summary.csv", "lease-summary.csv"}
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name not in known)
    for path in files:
        assert _JOBS.fullmatch(path.name) or _LEASES.fullmatch(path.name), path.name
    return files


def read_golden(path: Path) -> Golden:
    match = _JOBS.fullmatch(path.name)
    leases = match is None
    match = match or _LEASES.fullmatch(path.name)
    assert match is not None, path.name
    summary, size, header = (
        ("lease-summary.csv", "nodes", ["lease", "state", "start", "end"])
        if leases
        else ("summary.csv", "procs", ["id", "start", "end"])
    )
    with (path.parent / summary).open() as lines:
        sizes = {row["file"]: int(row[size]) for row in csv.DictReader(lines)}
    with gzip.open(path, "rt") as lines:
        reader = csv.reader(lines)
        assert next(reader) == header, path.name
        rows = [tuple(row) for row in reader]
    return Golden(
        path.name,
        match["trace"],
        Policies(backfilling=_BACKFILLING[match["policy"]], preemption=NoPreemption()),
        sizes[path.name],
        None if leases else int(match["count"]),
        rows,
    )


def workload_of(golden: Golden, folder: Path) -> Workload:
    """Return the input of a golden schedule."""
    if golden.of_leases:
        return read_leases(folder / "leases" / f"{golden.trace}.csv.gz")
    return read_swf(folder / _TRACES[golden.trace], processors=golden.machine, first=golden.count)


def read_leases(path: Path) -> Workload:
    """Return a table of leases, one a row."""
    with gzip.open(path, "rt") as lines:
        reader = csv.DictReader(lines)
        assert reader.fieldnames == ["lease", "kind", "submit", "reqstart", "req", "run", "nodes"]
        rows = list(reader)
    assert {row["kind"] for row in rows} <= {"AR", "BE"}
    return Workload(
        path.name,
        ids=[row["lease"] for row in rows],
        arrivals=[int(row["submit"]) * SECOND_MS for row in rows],
        widths=[int(row["nodes"]) for row in rows],
        requests=[int(row["req"]) * SECOND_MS for row in rows],
        runs=[int(row["run"]) * SECOND_MS for row in rows],
        starts=[int(row["reqstart"]) * SECOND_MS if row["kind"] == "AR" else None for row in rows],
    )


def schedule_of(golden: Golden, workload: Workload) -> list[tuple[str, ...]]:
    """Run the workload and return its schedule as the golden file would write it."""
    outcome = simulate_counted(
        workload, golden.machine, golden.policies, sweep_always=not golden.of_leases
    )
    rows: list[tuple[str, ...]] = []
    for index, name in enumerate(workload.ids):
        start, end = outcome.starts[index], outcome.ends[index]
        times = (_seconds(start), _seconds(end))
        if golden.of_leases:
            rows.append((name, "Rejected" if start is None else "Done", *times))
        else:
            rows.append((name, *times))
    return rows


def _seconds(instant: int | None) -> str:
    if instant is None:
        return "-1"
    assert instant % SECOND_MS == 0
    return str(instant // SECOND_MS)
