"""One acting leader a group: win, take an epoch, fence, act again and again, step down.

An epoch from slottable and the fence in our own database come before the first look, so what a
former leader still writes is refused where it lands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from tenure_autoscaler import metrics
from tenure_autoscaler.acting import FleetActor, Surroundings
from tenure_autoscaler.elastic_acting import ElasticActor
from tenure_autoscaler.executing import LeadershipOverError
from tenure_autoscaler.providers.port import Provider
from tenure_autoscaler.records import GroupClaim
from tenure_autoscaler.values import Group
from tenure_core.errors import DomainError, NotFound, Stale
from tenure_runtime.election.elector import Elector, Leadership
from tenure_runtime.telemetry.logging import get_logger
from tenure_runtime.telemetry.tracing import span

log = get_logger()
_RETRY_S: Final = 1.0


class GroupLeader:
    """The part of this replica in acting for one group."""

    def __init__(
        self,
        group: str,
        provider: Provider,
        around: Surroundings,
        elector: Elector,
        *,
        holder: str,
        period_s: float,
        elastic: bool = False,
    ) -> None:
        self._elastic = elastic
        self._group = group
        self._provider = provider
        self._around = around
        self._elector = elector
        self._holder = holder
        self._period_s = period_s
        self.wake = asyncio.Event()

    async def run(self) -> None:
        """Campaign and act until cancelled."""
        while True:
            leadership = await self._elector.campaign(f"group/{self._group}", self._holder)
            try:
                await self._lead(leadership)
            except (Stale, LeadershipOverError) as error:
                log.warning("fleet.deposed", group=self._group, reason=type(error).__name__)
            except DomainError as error:
                log.warning("fleet.not_led", group=self._group, reason=error.reason)
            finally:
                metrics.forget(self._group)
                await leadership.resign()
            await asyncio.sleep(_RETRY_S)

    async def _lead(self, leadership: Leadership) -> None:
        if not leadership.valid():
            # Paused since it won: a newer epoch would only depose whoever leads by now.
            raise LeadershipOverError
        epoch = await self._around.nodes.acquire_epoch(self._group, self._holder)
        claim = GroupClaim(self._group, epoch)
        await self._around.book.fence(claim)
        log.info("fleet.led", group=self._group, epoch=epoch)
        kind = ElasticActor if self._elastic else FleetActor
        actor = kind(claim, self._provider, self._around, leadership.valid)
        failures = 0
        while leadership.valid():
            self.wake.clear()
            try:
                with span("autoscaler.act", group=self._group):
                    await actor.run_once()
                failures = 0
                metrics.ACTED.add(1, self._group, "ok")
            except (Stale, NotFound):
                raise
            except DomainError as error:
                failures += 1
                metrics.ACTED.add(1, self._group, "failed")
                log.warning("fleet.failed", group=self._group, reason=error.reason)
            await self._pause(failures)

    async def _pause(self, failures: int) -> None:
        wait_s = min(30.0, self._period_s * 2 ** min(failures, 8))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.wake.wait()
                # What belongs together comes together, and a storm of news costs no more.
                await asyncio.sleep(self._period_s / 5)


class GroupLeaders:
    """The leaders of all groups that act; `refresh` follows what groups there are."""

    def __init__(
        self,
        around: Surroundings,
        tasks: asyncio.TaskGroup,
        make: Callable[[Group], GroupLeader | None],
    ) -> None:
        """`make` returns None for a group whose provider is not known here."""
        self._around = around
        self._tasks = tasks
        self._make = make
        self._running: dict[str, tuple[GroupLeader, asyncio.Task[None]]] = {}

    def wake(self) -> None:
        """Have every leader look now."""
        for leader, _ in self._running.values():
            leader.wake.set()

    async def refresh(self) -> None:
        """Run for the groups that act, and no longer for those that do not."""
        groups: list[Group] = []
        while page := await self._around.store.list_groups(
            groups[-1].group if groups else "", 1_000
        ):
            groups += page
        acting = {group.group: group for group in groups if group.acts}
        for name in [name for name in self._running if name not in acting]:
            self._running.pop(name)[1].cancel()
        for name, group in acting.items():
            if name not in self._running and (leader := self._make(group)) is not None:
                self._running[name] = (leader, self._tasks.create_task(leader.run()))

    def close(self) -> None:
        """Stop acting."""
        for _, task in self._running.values():
            task.cancel()
        self._running.clear()
