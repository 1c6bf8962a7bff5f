"""Verifies a demo: results by recomputation, what ran where from the agents' own trails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli.demo.submitting import AMOUNTS, DemoState
from tenure_cli.demo.work import digest
from tenure_cli.demo.workload import ROUNDS, DemoLease
from tenure_core.resources import ResourceVector
from tenure_core.trails import Run, doubles, excesses, mixed_attempts, runs_of

SLOT = ResourceVector(AMOUNTS)
STANDING = ResourceVector({"memory": AMOUNTS["memory"]})
"""What a suspended slot goes on to hold: all but its processor."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was verified, of how many, and what is wrong."""

    name: str
    count: int
    wrong: tuple[str, ...] = ()


def read_trails(agents: Path, pattern: str = "*/trail.jsonl") -> list[Run]:
    """Return what ran, from the trails below the agents' folder."""
    lines: list[dict[str, Any]] = []
    for trail in sorted(agents.glob(pattern)):
        text = trail.read_text(encoding="utf-8")
        lines.extend(json.loads(line) for line in text.splitlines())
    return runs_of(lines)


def verify(
    state: DemoState, results: Path, runs: Sequence[Run], nodes: Sequence[str], node: ResourceVector
) -> list[Check]:
    """Return every check with what is wrong; nothing wrong anywhere is what a demo must show."""
    done = [
        lease
        for lease in state.leases
        if lease.id in state.known and state.known[lease.id].state == lpb.Lease.STATE_DONE
    ]
    completed = [lease for lease in done if state.known[lease.id].reason == "COMPLETED"]
    return [
        Check("leases ended", len(state.leases), tuple(_unended(state))),
        Check("results recomputed", *_results(completed, results)),
        Check("runs in the trails", len(runs), tuple(_untold(state, completed, runs))),
        Check(
            "no slot ran twice at once",
            len(runs),
            tuple(f"{a.lease}.{a.rank}" for a, _ in [*doubles(runs), *mixed_attempts(runs)]),
        ),
        Check(
            "no node over its capacity",
            len(nodes),
            tuple(
                f"{e.node}: {e.held} of {e.capacity}"
                for e in excesses(
                    runs, dict.fromkeys(nodes, node), lambda _: SLOT, lambda _: STANDING
                )
            ),
        ),
    ]


def _unended(state: DemoState) -> list[str]:
    return [
        lease.id
        for lease in state.leases
        if lease.id not in state.refused and lease.id not in state.known
    ]


def _results(leases: Sequence[DemoLease], folder: Path) -> tuple[int, tuple[str, ...]]:
    count, wrong = 0, []
    for lease in leases:
        for rank in range(lease.width):
            count += 1
            path = folder / f"{lease.id}.{rank}.json"
            if not path.exists():
                wrong.append(f"{lease.id}.{rank} left no result")
            elif json.loads(path.read_text())["digest"] != digest(f"{lease.seed}.{rank}", ROUNDS):
                wrong.append(f"{lease.id}.{rank} computed something else")
    return count, tuple(wrong)


def _untold(state: DemoState, leases: Sequence[DemoLease], runs: Sequence[Run]) -> list[str]:
    """Return completed slots that the trails do not know to have ended well."""
    well = {(run.lease, run.attempt, run.rank) for run in runs if run.exit_code == 0}
    return [
        f"{lease.id}.{rank}"
        for lease in leases
        for rank in range(lease.width)
        if (lease.id, state.known[lease.id].attempt, rank) not in well
    ]
