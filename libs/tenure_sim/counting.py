"""Simulates interchangeable capacity by counts: the fast way, for traces of one kind of slot.

At one instant: ends, then promises and bookings that are due, then arrivals in file order, then one
walk through the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from tenure_core.planning.counted import CountedBook, CountedEasy
from tenure_core.policies.bundle import Policies
from tenure_core.timebase import FOREVER, Millis
from tenure_sim.progress import Progress
from tenure_sim.workload import Workload


@dataclass(slots=True)
class CountedOutcome:
    """When each lease started and ended, None for one that was refused."""

    starts: list[Millis | None]
    ends: list[Millis | None]


def simulate_counted(
    workload: Workload,
    slots: int,
    policies: Policies,
    *,
    sweep_always: bool = True,
    progress: Progress | None = None,
) -> CountedOutcome:
    """Run a workload without own specs on `slots` interchangeable slots.

    `sweep_always` says whether promises are reconsidered after every end, or only after one that
    came before its time.
    """
    shown = progress or Progress()
    backfilling = policies.backfilling
    most = backfilling.promises_max
    if workload.starts is None and (most == 1 or not backfilling.passing):
        easy = CountedEasy(slots, workload.widths, workload.requests, passing=backfilling.passing)
        return _run_easy(workload, easy, shown)
    book = CountedBook(
        slots,
        workload.widths,
        workload.requests,
        promises_max=most,
        passing=backfilling.passing,
        sweep_always=sweep_always,
    )
    return _run_book(workload, book, shown)


def _run_easy(workload: Workload, planner: CountedEasy, progress: Progress) -> CountedOutcome:
    arrivals, runs = workload.arrivals, workload.runs
    count = len(arrivals)
    starts: list[Millis | None] = [None] * count
    ends: list[Millis | None] = [None] * count
    running: list[tuple[Millis, int]] = []
    following = 0
    while following < count or running:
        now = running[0][0] if running else FOREVER
        if following < count and arrivals[following] < now:
            now = arrivals[following]
        while running and running[0][0] == now:
            planner.end(heappop(running)[1])
        first = following
        while following < count and arrivals[following] == now:
            following += 1
        progress.done = following
        for lease in planner.decide(now, range(first, following)):
            starts[lease] = now
            end = ends[lease] = now + runs[lease]
            heappush(running, (end, lease))
    return CountedOutcome(starts, ends)


def _run_book(workload: Workload, planner: CountedBook, progress: Progress) -> CountedOutcome:
    arrivals, runs = workload.arrivals, workload.runs
    wanted = workload.starts
    count = len(arrivals)
    starts: list[Millis | None] = [None] * count
    ends: list[Millis | None] = [None] * count
    running: list[tuple[Millis, int]] = []
    following = 0

    def start(leases: list[int]) -> None:
        for lease in leases:
            starts[lease] = now
            end = ends[lease] = now + runs[lease]
            heappush(running, (end, lease))

    while True:
        now = min(running[0][0] if running else FOREVER, planner.next_start())
        if following < count:
            now = min(now, arrivals[following])
        if now == FOREVER:
            return CountedOutcome(starts, ends)
        while running and running[0][0] == now:
            planner.end(heappop(running)[1], now)
        planner.reconsider(now)
        start(planner.due(now))
        queued: list[int] = []
        while following < count and arrivals[following] == now:
            at = None if wanted is None else wanted[following]
            if at is None:
                queued.append(following)
            elif at >= now:
                planner.book(following, at)
            following += 1
        progress.done = following
        start(planner.due(now) if wanted is not None else [])
        start(planner.decide(now, queued))
