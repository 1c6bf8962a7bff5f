"""What became of each lease of a simulation, as parallel columns, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TextIO

from tenure_core.policies.pricing import Quote
from tenure_core.timebase import Millis
from tenure_sim.scores import BOUND_MS, Scores
from tenure_sim.workload import Workload

COLUMNS = (
    "lease",
    "kind",
    "state",
    "reason",
    "arrival_ms",
    "start_ms",
    "end_ms",
    "wait_ms",
    "run_ms",
    "requested_ms",
    "slots",
    "bounded_slowdown",
    "preemptions",
    "nodes",
    "owner",
)
"""The columns of the per-lease output, in order; a priced run has two more."""

_PRICED = ("price", "surcharge")


@dataclass(frozen=True, slots=True)
class Stretch:
    """One uninterrupted run of a lease: from when to when, and the node of each slot."""

    lease: int
    start: Millis
    end: Millis
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The outcome of one run of a workload under one set of policies.

    `starts[i]` is the first start of lease i, None when it never started, `ends[i]` its end.
    `nodes[i]` names its node for each slot in its last run. That column is None when it was planned
    by counts, as is `stretches`, which are in the order in which they ended. `quotes` says what
    each lease was asked to pay, None in a run in which nothing costs anything. `seed` is what the
    run was given; the outcome depends on nothing else.
    """

    workload: Workload
    policies: str
    seed: int
    states: Sequence[str]
    reasons: Sequence[str]
    starts: Sequence[Millis | None]
    ends: Sequence[Millis | None]
    preemptions: Sequence[int]
    kinds: Sequence[str]
    nodes: Sequence[tuple[str, ...]] | None
    scores: Scores
    stretches: Sequence[Stretch] | None = None
    quotes: Sequence[Quote | None] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of `rows`."""
        return COLUMNS if self.quotes is None else COLUMNS + _PRICED

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Return one row a lease, in the order of `columns`; None where there is no value."""
        workload = self.workload
        for i, name in enumerate(workload.ids):
            start, end, arrival = self.starts[i], self.ends[i], workload.arrivals[i]
            wait = slowdown = None
            if start is not None:
                wait = start - arrival
            if start is not None and end is not None and self.states[i] != "CANCELLED":
                slowdown = round(max(1.0, (end - arrival) / max(workload.runs[i], BOUND_MS)), 4)
            nodes = "" if self.nodes is None else " ".join(self.nodes[i])
            owner = "" if workload.owners is None else workload.owners[i]
            row = (
                name,
                self.kinds[i],
                self.states[i],
                self.reasons[i],
                arrival,
                start,
                end,
                wait,
                workload.runs[i],
                workload.requests[i],
                workload.widths[i],
                slowdown,
                self.preemptions[i],
                nodes,
                owner,
            )
            yield row if self.quotes is None else (*row, *_shown(self.quotes[i]))

    def write_csv(self, out: TextIO) -> None:
        """Write a header and one line a lease; an empty field is no value."""
        out.write(",".join(self.columns) + "\n")
        workload = self.workload
        names = _quoted(workload.ids)
        owners = [""] * len(names) if workload.owners is None else _quoted(workload.owners)
        lines: list[str] = []
        columns = zip(
            names, self.kinds, self.states, self.reasons, workload.arrivals, self.starts,
            self.ends, workload.runs, workload.requests, workload.widths, self.preemptions,
            self.nodes or repeat(()), owners, self._prices(), strict=False,
        )  # fmt: skip
        for (
            name, kind, state, reason, arrival, start, end, run, request, width, evicted, nodes,
            owner, price,
        ) in columns:  # fmt: skip
            shown = "" if end is None else end
            wait: Millis | str = ""
            slowdown: float | str = ""
            if start is not None:
                wait = start - arrival
                if end is not None and state != "CANCELLED":
                    ratio = (end - arrival) / (run if run > BOUND_MS else BOUND_MS)
                    slowdown = round(ratio, 4) if ratio > 1.0 else 1.0
            lines.append(
                f"{name},{kind},{state},{reason},{arrival},{'' if start is None else start},"
                f"{shown},{wait},{run},{request},{width},{slowdown},{evicted},"
                f"{' '.join(nodes)},{owner}{price}\n"
            )
            if len(lines) == 10_000:
                out.write("".join(lines))
                lines.clear()
        out.write("".join(lines))

    def _prices(self) -> Iterable[str]:
        """Return the end of each line: nothing where nothing costs anything."""
        if self.quotes is None:
            return repeat("")
        return ["".join(f",{'' if n is None else n}" for n in _shown(q)) for q in self.quotes]

    def write_json(self, out: TextIO) -> None:
        """Write one object: the workload, policies, seed, scores, and the leases as objects."""
        leases = [dict(zip(self.columns, row, strict=True)) for row in self.rows()]
        document = {
            "workload": self.workload.name,
            "policies": self.policies,
            "seed": self.seed,
            "bad_lines": [[entry.line, entry.reason] for entry in self.workload.bad],
            "scores": self.scores.as_json(),
            "leases": leases,
        }
        json.dump(document, out, sort_keys=True, separators=(",", ":"))
        out.write("\n")


def _shown(quote: Quote | None) -> tuple[float | None, float | None]:
    return (None, None) if quote is None else (round(quote.price, 6), round(quote.surcharge, 6))


def _quoted(names: Sequence[str]) -> Sequence[str]:
    """Return names as CSV has them: in quotes where they hold what would part fields or lines."""
    together = "".join(names)
    if not any(char in together for char in ',"\n\r'):
        return names
    return [
        '"' + name.replace('"', '""') + '"' if any(char in name for char in ',"\n\r') else name
        for name in names
    ]
