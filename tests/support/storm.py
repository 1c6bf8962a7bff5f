"""A compressed workload of real processes of all four kinds, played while things break.

`Storm.play` submits it and follows it to its end whatever happens to the suite; `final_checks` then
holds what must be true afterwards, whatever was killed: nothing lost, nothing twice, nothing over
capacity, nothing left behind.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from time import time_ns
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask
from tests.support.suite import RunningSuite, until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure_admission.store import ledger
from tenure_cli.demo.submitting import DemoState, Submitter
from tenure_cli.demo.verifying import read_trails, verify
from tenure_cli.demo.workload import TRACE, DemoLease, demo_leases
from tenure_cli.leases import ENDED, state_name
from tenure_core.errors import DomainError
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis
from tenure_core.trails import Run
from tenure_runtime.ids import RandomIds
from tenure_runtime.postgres.pool import PoolOptions, open_pool
from tenure_runtime.postgres.transaction import run
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_millis

NODE: Final = ResourceVector.parse("cpu=4,memory=4Gi")
SLOTS: Final = 4
"""Slots of a node: each takes one processor."""

ARRIVAL_EVERY_MS: Final[Millis] = 350
RUN_SHARE: Final = 0.3
RUN_MAX_MS: Final[Millis] = 3_500
SLACK_MS: Final[Millis] = 2_500
LEAD_MS: Final[Millis] = 3_500
ENDS_WITHIN_S: Final = 120.0
CANCELS: Final = 0.25
"""How often a fickle owner cancels, instead of asking for more time."""


def storm_leases(slots: int, count: int) -> list[DemoLease]:
    """Return the demo's first leases, compressed to some 25 seconds.

    They come evenly, and none is wider than three quarters of the pool: bookings find preemptible
    work to suspend.
    """
    found: list[DemoLease] = []
    booked = 0
    for index, lease in enumerate(demo_leases(TRACE, slots, count)):
        arrival = index * ARRIVAL_EVERY_MS
        run = min(RUN_MAX_MS, max(800, round(lease.run * RUN_SHARE)))
        request = run + SLACK_MS
        width = min(lease.width, slots * 3 // 4)
        start = deadline = None
        if lease.start is not None:
            start = max(booked, arrival) + LEAD_MS
            booked = start + request
        elif lease.deadline is not None:
            deadline = arrival + 3 * request + 25_000
        found.append(
            replace(
                lease,
                arrival=arrival,
                width=width,
                run=run,
                request=request,
                start=start,
                deadline=deadline,
            )
        )
    return found


class Storm:
    """One workload against one suite."""

    def __init__(self, running: RunningSuite, count: int = 30) -> None:
        slots = SLOTS * len(running.suite.agent_names())
        self.running = running
        self.state = DemoState(storm_leases(slots, count), 0)
        self.over_capacity: list[str] = []
        self.samples = 0
        self.cancelled: set[str] = set()
        self._results = running.folder / "results"
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to play in the background."""
        self._results.mkdir()
        self.state.began_ms = time_ns() // 1_000_000 + 200
        self._task = asyncio.create_task(self._play())

    async def _play(self) -> None:
        async with self.running.connect() as connection:
            sampling = asyncio.create_task(self._sample())
            try:
                await Submitter(connection, self.state, self._results).run()
            finally:
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)

    async def fickle_owner(self, rng: random.Random) -> None:
        """Cancel and extend leases at random, until cancelled."""
        async with self.running.connect() as connection:
            client, stub = await connection.admission()
            while True:
                await asyncio.sleep(rng.uniform(0.2, 0.8))
                live = [x for x in self.state.known.values() if x.state not in ENDED]
                if not live:
                    continue
                lease = rng.choice(sorted(live, key=lambda each: each.name))
                with suppress(DomainError):
                    if rng.random() < CANCELS:
                        self.cancelled.add(bare(lease.name))
                        wish = apb.CancelLeaseRequest(
                            name=lease.name, request_id=RandomIds().request_id()
                        )
                        await client.call(stub.CancelLease, wish, timeout_s=30)
                    else:
                        await client.call(stub.UpdateLease, _longer(lease, rng), timeout_s=30)

    def count(self, *states: int) -> int:
        """Return how many leases are in one of the states, as last heard."""
        return sum(lease.state in states for lease in self.state.known.values())

    def counts(self) -> dict[str, int]:
        """Return how many leases are in which state, for messages."""
        return dict(Counter(state_name(lease.state) for lease in self.state.known.values()))

    async def under_load(self, active: int = 4) -> None:
        """Wait until so many leases run and others wait or are about to start."""
        await until(
            lambda: self.count(lpb.Lease.STATE_ACTIVE) >= active,
            30.0,
            f"{active} leases run at once; now {self.counts()}",
        )

    async def moves_on(self, changes: int = 5) -> None:
        """Wait until so many leases have changed since now."""
        before = {name: lease.version for name, lease in self.state.known.items()}
        await until(
            lambda: (
                sum(x.version != before.get(name) for name, x in self.state.known.items())
                >= changes
                or self.state.all_ended()
            ),
            60.0,
            f"{changes} leases change; now {self.counts()}",
        )

    async def busy_on(self, node: str, slots: int = 2) -> None:
        """Wait until so many slots of running leases are placed on a node."""

        def there() -> int:
            return sum(
                bare(placement.node) == node
                for lease in self.state.known.values()
                if lease.state == lpb.Lease.STATE_ACTIVE
                for placement in lease.placements
            )

        await until(lambda: there() >= slots, 30.0, f"{slots} slots run on {node}")

    async def ended(self) -> None:
        """Wait until every lease has ended; fail with those that have not."""
        assert self._task is not None
        try:
            async with asyncio.timeout(ENDS_WITHIN_S):
                await self._task
        except TimeoutError:
            stuck = [
                f"{name} {state_name(lease.state)} {lease.reason} attempt {lease.attempt}"
                for name, lease in sorted(self.state.known.items())
                if lease.state not in ENDED
            ]
            unheard = [x.id for x in self.state.leases if x.id not in self.state.known]
            raise AssertionError(
                f"not ended within {ENDS_WITHIN_S:g} s: {stuck}; unheard of: {unheard}, "
                f"refused: {self.state.refused}"
            ) from None

    # Whatever happens, the table is never over-booked.

    async def _sample(self) -> None:
        async with self.running.connect() as connection:
            client, stub = await connection.slottable()
            request = spb.ListReservationsRequest(page_size=5_000)
            while True:
                try:
                    page = await client.call(stub.ListReservations, request, retry=False)
                except DomainError:
                    await asyncio.sleep(0.2)
                    continue
                self.samples += 1
                self.over_capacity += _overbooked(page.reservations)
                await asyncio.sleep(0.4)


def _longer(lease: lpb.Lease, rng: random.Random) -> apb.UpdateLeaseRequest:
    """Return the wish for up to two seconds more, never less than the work takes."""
    more = span_to_millis(lease.duration) + rng.randrange(100, 2_000)
    return apb.UpdateLeaseRequest(
        lease=lpb.Lease(name=lease.name, duration=to_duration(more)),
        update_mask=FieldMask(paths=["duration"]),
        request_id=RandomIds().request_id(),
    )


def _overbooked(rows: Iterable[rpb.Reservation]) -> list[str]:
    """Return where the rows of one answer hold more than a node has, at any instant."""
    marks: dict[str, list[tuple[Millis, int, ResourceVector]]] = {}
    for row in rows:
        if row.displaced:
            continue
        amounts = ResourceVector(row.amounts)
        of_node = marks.setdefault(row.node, [])
        of_node.append((to_millis(row.interval.start_time), 1, amounts))
        if row.interval.HasField("end_time"):
            of_node.append((to_millis(row.interval.end_time), 0, amounts))
    wrong = []
    for node, changes in marks.items():
        held = ResourceVector()
        for at, begins, amounts in sorted(changes, key=lambda mark: mark[:2]):
            held = held + amounts if begins else held - amounts
            if not held.fits_in(NODE):
                wrong.append(f"{node} holds {held} at {at}")
    return wrong


async def final_checks(storm: Storm, *, may_fail: frozenset[str] = frozenset()) -> list[Run]:
    """Assert everything that must hold when all is over; return what ran.

    `may_fail` are reasons for which leases of this test may have failed or been rejected, besides
    those that any busy pool has: an immediate lease without room, a booking that does not fit.
    """
    state, running = storm.state, storm.running
    await _nothing_lost(storm)
    runs = read_trails(running.folder / "agents")
    names = running.suite.agent_names()
    wrong = {
        check.name: check.wrong
        for check in verify(state, storm._results, runs, names, NODE)
        if check.wrong
    }
    assert not wrong, wrong
    unended = [run for run in runs if run.end is None]
    assert not unended, f"work of an ended lease runs: {unended}"
    _ended_well(storm, may_fail)
    assert storm.samples > 5, "the slot table was hardly looked at"
    assert not storm.over_capacity, storm.over_capacity
    await _nothing_left_behind(running)
    return runs


async def _nothing_lost(storm: Storm) -> None:
    """Compare what was acknowledged and heard with what admission says now."""
    async with storm.running.connect() as connection:
        client, stub = await connection.admission()
        request = apb.ListLeasesRequest(page_size=1_000)
        listed = {bare(x.name): x for x in (await client.call(stub.ListLeases, request)).leases}
    wanted = {lease.id for lease in storm.state.leases}
    refused = set(storm.state.refused)
    differ = set(listed) ^ (wanted - refused)
    assert not differ, f"lost, or known though refused: {differ}"
    unended = {name: state_name(x.state) for name, x in listed.items() if x.state not in ENDED}
    assert not unended, unended
    storm.state.known.update(listed)


BUSY: Final = frozenset({"NOT_AVAILABLE_NOW", "NOT_AVAILABLE_AT_START"})
LATE: Final = frozenset({"START_PASSED", "START_MISSED"})
"""What a booking may end with whose whole time fell into an outage."""

LOST: Final = frozenset({"NODE_LOST", "NO_SUITABLE_NODES", "DEADLINE_CANNOT_BE_MET", *LATE})
"""What a lease bound to its time may end with when a part of the pool is gone for long."""


def _ended_well(storm: Storm, may_fail: frozenset[str]) -> None:
    """Assert that what could wait was done, and that all else says why not."""
    bad = {}
    for lease in storm.state.leases:
        if lease.id in storm.state.refused:
            bad[lease.id] = storm.state.refused[lease.id]
            continue
        wire = storm.state.known[lease.id]
        if lease.id in storm.cancelled and wire.state == lpb.Lease.STATE_CANCELLED:
            continue
        if wire.HasField("pending_change") and not wire.pending_change.verdict:
            bad[lease.id] = f"nobody decided its change: {wire.pending_change}"
            continue
        allowed = frozenset() if lease.kind == "best effort" else BUSY | may_fail
        if wire.state != lpb.Lease.STATE_DONE and wire.reason not in allowed:
            bad[lease.id] = f"{lease.kind} {state_name(wire.state)} {wire.reason}: {wire.message}"
    assert not bad, bad
    completed = [x for x in storm.state.known.values() if x.reason == "COMPLETED"]
    assert len(completed) * 2 > len(storm.state.leases), "hardly anything was completed"


async def _nothing_left_behind(running: RunningSuite) -> None:
    """Assert that the slot table holds nothing and nothing is charged."""
    async with running.connect() as connection:
        client, stub = await connection.slottable()

        async def empty() -> bool:
            page = await client.call(
                stub.ListReservations, spb.ListReservationsRequest(page_size=5_000)
            )
            return not page.reservations

        await until(empty, 10.0, "no reservation of an ended lease is left")
    pool = await open_pool(PoolOptions(running.dsn(), "admission", size_max=1))
    try:
        drifts = await run(pool, ledger.drifts, isolation="repeatable_read", readonly=True)
        assert not drifts, drifts
        charged = await pool.fetch("SELECT * FROM usage WHERE amount <> 0")
        assert not charged, [tuple(row) for row in charged]
    finally:
        await pool.close()
