"""What is simulated: the leases that arrive, as parallel columns.

Times are milliseconds on the simulation's own clock. A workload whose leases are all best-effort or
advance, of the same amounts a slot, needs no spec a lease (`specs` is None): such leases are
interchangeable but for width and time, and cost little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tenure_core.leases.lease import Advance, BestEffort, LeaseSpec
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis

SLOT = ResourceVector({"cpu": 1000})
"""What one processor of a trace stands for unless something else is said: one core."""


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line of a trace that is no job: where, and what is wrong with it."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class SimLease:
    """One lease that arrives at `arrival` and would really run for `run_ms`.

    Its owner gives it up at `cancel`, if it has not ended by then.
    """

    id: str
    arrival: Millis
    spec: LeaseSpec
    run_ms: Millis
    cancel: Millis | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Leases in the order of arrival, ties in file order.

    `starts[i]` is the start that an advance lease asks for, None for one that queues; the whole
    column is None when there is no advance lease. `requests` are the durations asked for, `runs`
    the real ones, never longer. `bad` are the lines that were skipped on request, `left_out` is how
    many records were no lease by the trace's own rules. `owners` names who asked, where known;
    `labels` are those of leases without a spec. `cancels[i]` is when the owner of lease i gives it
    up, None for never; the column is None when nobody does.
    """

    name: str
    ids: Sequence[str]
    arrivals: Sequence[Millis]
    widths: Sequence[int]
    requests: Sequence[Millis]
    runs: Sequence[Millis]
    starts: Sequence[Millis | None] | None = None
    slot: ResourceVector = SLOT
    specs: Sequence[LeaseSpec] | None = None
    bad: tuple[BadLine, ...] = field(default=())
    owners: Sequence[str] | None = None
    left_out: int = 0
    labels: Sequence[Mapping[str, str]] | None = None
    cancels: Sequence[Millis | None] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, name: str, leases: Iterable[SimLease]) -> Workload:
        """Return the workload of leases that each have their own spec, in the order of arrival."""
        ordered = sorted(leases, key=lambda lease: lease.arrival)
        starts = [
            lease.spec.terms.start if isinstance(lease.spec.terms, Advance) else None
            for lease in ordered
        ]
        cancels = [lease.cancel for lease in ordered]
        return cls(
            name=name,
            ids=[lease.id for lease in ordered],
            arrivals=[lease.arrival for lease in ordered],
            widths=[lease.spec.node_count for lease in ordered],
            requests=[lease.spec.duration_ms for lease in ordered],
            runs=[min(lease.run_ms, lease.spec.duration_ms) for lease in ordered],
            starts=starts if any(start is not None for start in starts) else None,
            specs=[lease.spec for lease in ordered],
            owners=[lease.spec.owner for lease in ordered],
            cancels=cancels if any(at is not None for at in cancels) else None,
        )

    def spec(self, index: int) -> LeaseSpec:
        """Return what lease `index` asks for."""
        if self.specs is not None:
            return self.specs[index]
        start = None if self.starts is None else self.starts[index]
        return LeaseSpec(
            owner="trace" if self.owners is None else self.owners[index],
            project="trace",
            pool="sim",
            terms=BestEffort() if start is None else Advance(start),
            node_count=self.widths[index],
            amounts=self.slot,
            duration_ms=self.requests[index],
            labels={} if self.labels is None else self.labels[index],
        )

    def first(self, count: int) -> Workload:
        """Return the workload of the first `count` leases."""
        return Workload(
            self.name,
            self.ids[:count],
            self.arrivals[:count],
            self.widths[:count],
            self.requests[:count],
            self.runs[:count],
            None if self.starts is None else self.starts[:count],
            self.slot,
            None if self.specs is None else self.specs[:count],
            self.bad,
            None if self.owners is None else self.owners[:count],
            self.left_out,
            None if self.labels is None else self.labels[:count],
            None if self.cancels is None else self.cancels[:count],
        )
