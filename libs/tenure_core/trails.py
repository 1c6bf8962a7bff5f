"""Checks what really ran, from the trails that agents' guardians write, and from nothing else.

A run lies between the `start` and the `end` line of one slot of one attempt; `suspend` and `resume`
lines part it into stretches in which it moved. A `wake` line begins none: suspended work moves only
to hear that it is to end, for its grace, and no capacity is booked for that. All times are
nanoseconds of one machine's boot clock: trails of one machine only may be checked together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tenure_core.resources import ResourceVector


@dataclass(frozen=True, slots=True)
class Run:
    """One slot of one attempt as it ran: [start, end), moving in `stretches`.

    `end` is None when no end was written: it runs still, or what watched it was killed too.
    """

    lease: str
    attempt: int
    rank: int
    node: str
    start: int
    end: int | None
    stretches: tuple[tuple[int, int | None], ...]
    exit_code: int | None = None
    wall_start: int = 0
    wall_end: int | None = None

    def overlaps(self, other: Run) -> bool:
        """Say whether both existed at some instant."""
        before = self.end is None or other.start < self.end
        return before and (other.end is None or self.start < other.end)


def runs_of(lines: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Return the runs that the lines of one or several trails tell, by start.

    Raises ValueError for lines that contradict one another: a trail must be believable.
    """
    open_runs: dict[tuple[str, int, int, str], list[Mapping[str, Any]]] = {}
    runs: list[Run] = []
    for line in sorted(lines, key=lambda each: int(each["boot_ns"])):
        key = (line["lease"], line["attempt"], line["rank"], line["node"])
        event = line["event"]
        if event == "start":
            if key in open_runs:
                raise ValueError(f"{key} starts twice without an end")
            open_runs[key] = [line]
        elif key not in open_runs:
            raise ValueError(f"{key} has a line {event} before its start")
        else:
            open_runs[key].append(line)
            if event == "end":
                runs.append(_run(open_runs.pop(key)))
    runs.extend(_run(lines) for lines in open_runs.values())
    return sorted(runs, key=lambda run: (run.start, run.lease, run.rank))


def _run(lines: list[Mapping[str, Any]]) -> Run:
    first, last = lines[0], lines[-1]
    ended = last["event"] == "end"
    stretches: list[tuple[int, int | None]] = []
    moving_since: int | None = first["boot_ns"]
    for line in lines[1:]:
        if line["event"] in ("suspend", "end"):
            if moving_since is not None:
                stretches.append((moving_since, line["boot_ns"]))
            moving_since = None
        elif line["event"] == "resume":
            moving_since = line["boot_ns"]
    if moving_since is not None and not ended:
        stretches.append((moving_since, None))
    return Run(
        first["lease"],
        first["attempt"],
        first["rank"],
        first["node"],
        first["boot_ns"],
        last["boot_ns"] if ended else None,
        tuple(stretches),
        last.get("exit_code") if ended else None,
        first["wall_ns"],
        last["wall_ns"] if ended else None,
    )


def doubles(runs: Iterable[Run]) -> list[tuple[Run, Run]]:
    """Return the pairs of runs of one slot that existed at the same time: two attempts at once."""
    by_slot: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        by_slot.setdefault((run.lease, run.rank), []).append(run)
    found: list[tuple[Run, Run]] = []
    for slot in by_slot.values():
        slot.sort(key=lambda run: run.start)
        found.extend(pair for pair in pairwise(slot) if pair[0].overlaps(pair[1]))
    return found


def mixed_attempts(runs: Iterable[Run]) -> list[tuple[Run, Run]]:
    """Return the pairs of runs of one lease whose attempts differ and that existed together."""
    by_lease: dict[str, list[Run]] = {}
    for run in runs:
        by_lease.setdefault(run.lease, []).append(run)
    return [
        (one, two)
        for of_lease in by_lease.values()
        for index, one in enumerate(of_lease)
        for two in of_lease[index + 1 :]
        if one.attempt != two.attempt and one.overlaps(two)
    ]


@dataclass(frozen=True, slots=True)
class Excess:
    """A node that carried more than it has: when, what, and how much there is."""

    node: str
    at: int
    held: ResourceVector
    capacity: ResourceVector


def excesses(
    runs: Iterable[Run],
    capacity: Mapping[str, ResourceVector],
    moving: Callable[[Run], ResourceVector],
    standing: Callable[[Run], ResourceVector],
) -> list[Excess]:
    """Return the instants at which a node's runs held more than its capacity.

    `moving` says what a run holds while it moves, `standing` what while it is suspended.
    O(n log n) in the number of lines, per node.
    """
    changes: dict[str, list[tuple[int, int, ResourceVector]]] = {}
    for run in runs:
        marks = changes.setdefault(run.node, [])
        for begin, end in run.stretches:
            marks.append((begin, 1, moving(run)))
            if end is not None:
                marks.append((end, 0, moving(run)))
        for (_, stopped), (resumed, _) in pairwise(run.stretches):
            assert stopped is not None, "only the last stretch may be open"
            marks.append((stopped, 1, standing(run)))
            marks.append((resumed, 0, standing(run)))
    found: list[Excess] = []
    for node in sorted(changes):
        held = ResourceVector()
        # Ends come before starts at one instant: spans are half-open.
        for at, begins, amounts in sorted(changes[node], key=lambda mark: mark[:2]):
            held = held + amounts if begins else held - amounts
            if begins and not held.fits_in(capacity.get(node, ResourceVector())):
                found.append(Excess(node, at, held, capacity.get(node, ResourceVector())))
    return found
