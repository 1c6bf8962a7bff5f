"""Applications in memory: the same promises as PostgreSQL's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tenure_core.agents.agent import Agent
from tenure_core.timebase import Clock, Millis
from tenure_registry.refusals import stale_epoch
from tenure_registry.values import ApplicationOrder, StoredApplication


class MemoryApplications:
    """Keeps the last report and the order of each agent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._agents: dict[str, Agent] = {}
        self._epochs: dict[str, int] = {}
        self._applications: dict[str, tuple[StoredApplication, Millis]] = {}
        self._application_orders: dict[str, ApplicationOrder] = {}

    async def application_reported(self, agent: str, session: str, report: bytes) -> bytes | None:
        """See `ApplicationStore`."""
        present = self._agents.get(agent)
        if present is None or present.session != session:
            return None
        known, _ = self._applications.get(agent, (None, 0))
        sequence = known.sequence + 1 if known else 1
        now_ms = self._clock.now_ms()
        stored = StoredApplication(agent, present.incarnation, sequence, 0, report, "")
        self._applications[agent] = (stored, now_ms)
        order = self._application_orders.get(agent)
        return order.body if order and order.incarnation == present.incarnation else None

    async def applications(self, agents: Collection[str]) -> list[StoredApplication]:
        """See `ApplicationStore`."""
        now_ms, found = self._clock.now_ms(), []
        for agent in sorted(set(agents) & set(self._applications)):
            stored, received_ms = self._applications[agent]
            order = self._application_orders.get(agent)
            known = order is not None and order.incarnation == stored.incarnation
            order_id = order.order_id if order is not None and known else ""
            found.append(replace(stored, age_ms=now_ms - received_ms, order_id=order_id))
        return found

    async def fence(self, scope: str, epoch: int) -> int:
        """See `Upkeep`."""
        stored = self._epochs.setdefault(scope, epoch)
        if stored > epoch:
            raise stale_epoch(scope, epoch, stored)
        self._epochs[scope] = epoch
        return epoch

    async def order_applications(
        self, scope: str, epoch: int, orders: Sequence[ApplicationOrder]
    ) -> None:
        """See `ApplicationStore`."""
        await self.fence(scope, epoch)
        self._application_orders |= {each.agent: each for each in orders}
