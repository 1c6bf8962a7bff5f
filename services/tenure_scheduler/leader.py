"""One pool's leadership on this replica: win, take over, follow, run cycles, step down.

The order of a take-over is what makes it safe: an epoch from slottable, the fence at admission and
the registry, and only then the first look at anything. From there every write carries the epoch and
is compared where it lands, so a leader that was paused changes nothing after another has fenced.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from tenure_core.errors import DomainError, Stale
from tenure_core.policies.bundle import Policies
from tenure_core.timebase import Clock
from tenure_runtime.election.elector import Elector, Leadership
from tenure_runtime.telemetry.logging import get_logger
from tenure_scheduler import metrics
from tenure_scheduler.cycle import Cycle, CycleResult, LeadershipOverError
from tenure_scheduler.entries import AgentChange, LeaseChange, ReportChange, RowChange
from tenure_scheduler.metering import Metering
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.planning import PoolRules
from tenure_scheduler.poolclock import PoolClock
from tenure_scheduler.ports import Claim, Neighbours, UsageStore

IDLE_S = 0.5
"""How long a leader with nothing to do waits before it looks again."""

GATHER_S = 0.002
"""How long a leader that was woken waits for more to come, so that a cycle takes in what belongs
together."""

log = get_logger()


class ResyncError(Exception):
    """What the leader knows may be wrong or incomplete: look at everything anew."""


class FeedEvent(Protocol):
    """What all feeds' events have in common."""

    @property
    def token(self) -> str:
        """Resumes after this event."""
        ...


Event = TypeVar("Event", bound=FeedEvent)


class Reign:
    """What a leader holds while it leads, for those who ask it."""

    def __init__(self, claim: Claim, mirror: PoolMirror, clock: PoolClock, cycle: Cycle) -> None:
        self.claim = claim
        self.mirror = mirror
        self.clock = clock
        self.cycle = cycle
        self.wake = asyncio.Event()
        self.turned = asyncio.Event()
        """Set and replaced after each cycle."""

    def turn(self) -> None:
        """Tell those who wait that a cycle is over."""
        turned, self.turned = self.turned, asyncio.Event()
        turned.set()


class PoolLeader:
    """The part of this replica in leading one pool."""

    def __init__(
        self,
        pool: str,
        *,
        holder: str,
        address: str,
        elector: Elector,
        neighbours: Neighbours,
        usage: UsageStore,
        policies: Callable[[], Policies],
        cordoned: Callable[[], bool] = lambda: False,
        boot: Clock,
    ) -> None:
        self.pool = pool
        self._holder = holder
        self._address = address
        self._elector = elector
        self._neighbours = neighbours
        self._usage = usage
        self._rules = PoolRules(policies, cordoned)
        self._boot = boot
        self._stepping_down = asyncio.Event()
        self.reign: Reign | None = None

    @property
    def scope(self) -> str:
        """Return the scope of the pool."""
        return f"pool/{self.pool}"

    async def run(self) -> None:
        """Campaign and lead, again and again, until cancelled."""
        while True:
            leadership = await self._elector.campaign(self.scope, self._address)
            self._stepping_down.clear()
            log.info("leader.elected", pool=self.pool, token=leadership.token)
            try:
                await self._lead(leadership)
            except (Stale, LeadershipOverError) as error:
                log.warning("leader.deposed", pool=self.pool, reason=type(error).__name__)
            except DomainError as error:
                log.warning("leader.failed", pool=self.pool, reason=error.reason, exc_info=error)
                await asyncio.sleep(IDLE_S)
            finally:
                self.reign = None
                await leadership.resign()
            log.info("leader.stepped_down", pool=self.pool)

    def step_down(self) -> None:
        """Hand the pool over after the cycle under way."""
        self._stepping_down.set()
        if self.reign is not None:
            self.reign.wake.set()

    async def _lead(self, leadership: Leadership) -> None:
        claim = await self.take_over(leadership)
        while leadership.valid() and not self._stepping_down.is_set():
            try:
                await self._reign(claim, leadership)
            except ResyncError:
                log.warning("leader.resync", pool=self.pool)
                await asyncio.sleep(GATHER_S)

    async def take_over(self, leadership: Leadership) -> Claim:
        """Take an epoch and fence everyone before it. Raises LeadershipOverError when too late."""
        if not leadership.valid():
            # Paused since it won: a newer epoch would only depose whoever leads by now.
            raise LeadershipOverError
        epoch = await self._neighbours.slots.acquire_epoch(self.pool, self._holder)
        claim = Claim(self.pool, epoch)
        if not leadership.valid():
            raise LeadershipOverError
        await asyncio.gather(
            self._neighbours.leases.fence(claim), self._neighbours.fleet.fence(claim)
        )
        log.info("leader.fenced", pool=self.pool, epoch=epoch)
        metrics.begin(self.pool)
        return claim

    async def _reign(self, claim: Claim, leadership: Leadership) -> None:
        """Look at everything, then follow the feeds and run cycles until something ends it."""
        mirror, clock = PoolMirror(), PoolClock(self._boot)
        slots, leases, fleet = (
            self._neighbours.slots,
            self._neighbours.leases,
            self._neighbours.fleet,
        )
        table = await slots.state(self.pool)
        clock.observe(table.at)
        held, lease_token = await leases.held(self.pool)
        agents, agent_token = await fleet.agents(self.pool)
        reports, report_token = await fleet.reports(self.pool)
        mirror.load(table, held)
        for agent in agents:
            mirror.put_agent(agent)
        for report in reports:
            if report.report is not None:
                mirror.put_report(report.report)
        mirror.occupy_nodes()
        meter = await self._usage.load(self.pool, clock.now_ms())
        cycle = Cycle(
            claim,
            mirror,
            clock,
            self._neighbours,
            metering=Metering(claim, mirror, self._usage, meter),
            rules=self._rules,
            leads=leadership.valid,
        )
        reign = Reign(claim, mirror, clock, cycle)

        def on_lease(change: LeaseChange) -> bool:
            return change.lease is not None and mirror.put_lease(change.lease)

        def on_row(change: RowChange) -> bool:
            clock.observe(change.at)
            before = mirror.generation
            mirror.apply(change)
            return mirror.generation != before

        def on_agent(change: AgentChange) -> bool:
            if change.agent is not None:
                mirror.put_agent(change.agent)
            return change.agent is not None

        def on_report(change: ReportChange) -> bool:
            if change.report is not None:
                mirror.put_report(change.report)
            return change.report is not None

        pool, wake = self.pool, reign.wake
        agents_from, reports_from = fleet.watch_agents, fleet.watch_reports
        loops: list[Coroutine[Any, Any, None]] = [
            _follow("leases", lambda t: leases.watch(pool, t), lease_token, on_lease, wake),
            _follow("slots", lambda t: slots.watch(pool, t), table.token, on_row, wake),
            _follow("agents", lambda t: agents_from(pool, t), agent_token, on_agent, wake),
            _follow("reports", lambda t: reports_from(pool, t), report_token, on_report, wake),
            self._cycles(reign, leadership),
        ]
        self.reign = reign
        await _until_first_ends(loops)

    async def _cycles(self, reign: Reign, leadership: Leadership) -> None:
        """Run cycles, woken by feeds and timers, until leadership ends."""
        while leadership.valid() and not self._stepping_down.is_set():
            reign.wake.clear()
            try:
                result = await reign.cycle.run_once()
            except Stale:
                raise
            except DomainError as error:
                metrics.CYCLES_FAILED.add(1, self.pool)
                log.warning("cycle.failed", pool=self.pool, reason=error.reason, exc_info=error)
                await asyncio.sleep(0.1)
                raise ResyncError from error
            _log_cycle(self.pool, result)
            reign.turn()
            await _pause(reign, leadership)

    async def trigger(self) -> CycleResult | None:
        """Run a cycle now, planning included; None when this replica does not lead."""
        reign = self.reign
        return None if reign is None else await reign.cycle.run_once(plan_anyway=True)


def _log_cycle(pool: str, result: CycleResult) -> None:
    say = log.info if result.scheduled else log.debug
    say(
        "cycle.done",
        pool=pool,
        number=result.number,
        scheduled=result.scheduled,
        queued=result.queued,
    )


async def _pause(reign: Reign, leadership: Leadership) -> None:
    """Wait for news, for the next timer, or for leadership to end."""
    timer = reign.mirror.next_timer()
    wait_s = IDLE_S
    if timer is not None:
        wait_s = min(wait_s, max(0.0, (timer - reign.clock.now_ms()) / 1_000))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await reign.wake.wait()
            await asyncio.sleep(GATHER_S)
    if leadership.lost.is_set():
        raise LeadershipOverError


async def _follow(
    name: str,
    watch: Callable[[str], AsyncGenerator[Event, None]],
    token: str,
    take_in: Callable[[Event], bool],
    wake: asyncio.Event,
) -> None:
    """Take in a feed's events for ever, resuming after each break."""
    failures = 0
    while True:
        try:
            async with aclosing(watch(token)) as events:
                async for event in events:
                    token, failures = event.token, 0
                    if take_in(event):
                        wake.set()
        except Stale as error:
            raise ResyncError from error
        except DomainError as error:
            failures += 1
            log.info("feed.broken", feed=name, reason=error.reason, failures=failures)
        await asyncio.sleep(min(1.0, 0.02 * 2 ** min(failures, 6)))


async def _until_first_ends(loops: list[Coroutine[Any, Any, None]]) -> None:
    """Run all until one returns or raises; then cancel the others and pass its error on."""
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
