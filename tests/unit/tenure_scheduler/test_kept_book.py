"""A book kept from pass to pass plans what one made anew would."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import pytest

from tenure_core.leases.lease import Advance, BestEffort, Deadline, Lease, LeaseSpec, Terms
from tenure_core.leases.states import LeaseState
from tenure_core.planning import plan as p
from tenure_core.planning.planner import plan, run_pass
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import Node
from tenure_core.timebase import Interval
from tenure_scheduler.dependencies import Dependencies
from tenure_scheduler.entries import LeaseEntry
from tenure_scheduler.kept_book import KeptBook
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.snapshots import Snapshots

CAPACITY = ((0, ResourceVector({"cpu": 4})),)


class Pool:
    """A pool whose plans take effect at once, most of the time."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.mirror = PoolMirror()
        for number in range(4):
            self.mirror.put_node(Node(f"n{number}", "pool", CAPACITY, version=1))
        book = cast(Any, None)
        dependencies = Dependencies(self.mirror, book)
        self.snapshots = Snapshots(self.mirror, dependencies, lambda: False, dict)
        self.kept = KeptBook(self.mirror, self.snapshots)
        self.now = 1_000
        self.made = 0

    def happen(self) -> None:
        """Let time pass, and one or two things happen."""
        self.now += self.rng.choice((0, 1, 50, 400))
        for _ in range(self.rng.randint(0, 3)):
            self._create()
        live = [entry.lease for entry in self.mirror.leases.values()]
        roll = self.rng.random()
        if live and roll < 0.2:
            self._end(self.rng.choice(live))
        elif roll < 0.25:
            name = f"n{self.rng.randrange(4)}"
            node = self.mirror.nodes[name]
            half = ((0, ResourceVector({"cpu": self.rng.choice((2, 4))})),)
            self.mirror.put_node(replace(node, capacity=half, version=node.version + 1))
        elif live and roll < 0.35:
            for row in self.mirror.rows_of(self.rng.choice(live).id):
                self.mirror.put_row(replace(row, displaced=True, version=row.version + 1))
        for lease in live:
            rows = self.mirror.rows_of(lease.id)
            if rows and max(row.interval.end for row in rows) + 100 <= self.now:
                self._end(lease)

    def _create(self) -> None:
        self.made += 1
        rng = self.rng
        start = self.now + rng.randint(1, 3_000)
        terms: Terms = rng.choice((BestEffort(), Advance(start), Deadline(start + 900)))
        cpu = ResourceVector({"cpu": rng.choice((1, 2, 4))})
        spec = LeaseSpec(
            "ada", "p", "pool", terms, rng.choice((1, 1, 2)), cpu, rng.choice((100, 500, 800)),
            preemptible=isinstance(terms, BestEffort),
        )  # fmt: skip
        lease = Lease(f"l{self.made}", spec, LeaseState.PENDING, self.now)
        self.mirror.put_lease(LeaseEntry(replace(lease, remaining_ms=spec.duration_ms)))

    def _put(self, lease: Lease, **changes: Any) -> None:
        self.mirror.put_lease(LeaseEntry(replace(lease, version=lease.version + 1, **changes)))

    def _end(self, lease: Lease) -> None:
        for row in self.mirror.rows_of(lease.id):
            self.mirror.drop_row(row.id, 1)
        self._put(lease, state=LeaseState.DONE)

    def take_effect(self, made: p.Plan) -> None:
        """Do what a plan says."""
        for group in made.groups:
            for each in group.operations:
                self._operate(each)
        for decision in made.decisions:
            lease = self.mirror.leases[decision.lease].lease
            match decision:
                case p.Schedule(attempt=attempt):
                    self._put(lease, state=LeaseState.SCHEDULED, attempt=attempt)
                case p.Preempt() if not self.mirror.rows_of(lease.id):
                    self._put(lease, state=LeaseState.QUEUED)
                case p.Reject() | p.Lose():
                    self._end(lease)
                case _:
                    pass

    def _operate(self, operation: p.Operation) -> None:
        rows = self.mirror.rows
        match operation:
            case p.Book():
                self.mirror.put_row(operation.row())
            case p.Release(reservation=name):
                self.mirror.drop_row(name, 1)
            case p.Move(reservation=name, interval=interval):
                self._change(rows[name], interval=interval)
            case p.Resize(reservation=name, end=end):
                self._change(rows[name], interval=Interval(rows[name].interval.start, end))
            case p.Rebind(reservation=name, node=node):
                self._change(rows[name], node=node, displaced=False)
            case p.Displace(reservation=name):
                self._change(rows[name], displaced=True)

    def _change(self, row: ReservationView, **changes: Any) -> None:
        self.mirror.put_row(replace(row, version=row.version + 1, **changes))


@pytest.mark.parametrize("seed", range(6))
def test_it_plans_what_a_book_made_anew_plans(seed: int) -> None:
    pool = Pool(seed)
    kept, bookings = 0, 0
    before = None
    for _ in range(120):
        pool.happen()
        anew = plan(pool.snapshots.take(pool.now), Policies())
        book = pool.kept.take(pool.now, Policies())
        kept += book is before
        run_pass(book)
        made = book.plan()
        assert made == anew
        bookings += len(made.groups)
        if pool.rng.random() < 0.9:
            pool.take_effect(made)
            pool.kept.hand_back(book)
        before = book
    assert kept > 10
    assert bookings > 20


def test_what_overran_or_lies_elsewhere_is_planned_from_the_beginning() -> None:
    pool = Pool(0)
    first = pool.kept.take(pool.now, Policies())
    pool.kept.hand_back(first)
    assert pool.kept.take(pool.now, Policies()) is first
    assert pool.kept.take(pool.now, Policies()) is not first, "it was not handed back"

    cpu = ResourceVector({"cpu": 1})
    span = Interval(pool.now - 10, pool.now + 10)
    row = ReservationView("r", "", 0, 0, "n0", span, cpu, ReservationKind.MAINTENANCE)
    pool.mirror.put_row(row)
    book = pool.kept.take(pool.now, Policies())
    pool.kept.hand_back(book)
    assert pool.kept.take(pool.now + 9, Policies()) is book
    pool.kept.hand_back(book)
    late = pool.kept.take(pool.now + 10, Policies())
    assert late is not book
    pool.kept.hand_back(late)
    assert pool.kept.take(pool.now + 11, Policies()) is not late
