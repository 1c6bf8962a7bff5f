"""What the autoscaler does for callers and observed groups; `acting` does the rest."""

from __future__ import annotations

from collections.abc import Sequence

from tenure_autoscaler.deciding import decide, machines_of, unmanaged
from tenure_autoscaler.ports import Demand, Fleet, FleetStore, Store
from tenure_autoscaler.values import Group, GroupChange, Machine, RequestMark
from tenure_core.autoscaling.fleet import FleetState
from tenure_core.timebase import Clock, Millis


class Groups:
    """Groups, as their owners keep them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, group: Group, mark: RequestMark) -> Group:
        """Store a new group. Raises AlreadyExists GROUP_EXISTS, Invalid REQUEST_ID_REUSED."""
        return await self._store.create_group(group, mark)

    async def change(self, group: str, change: GroupChange, version: int | None = None) -> Group:
        """Change a group. Raises NotFound, Conflict ETAG_MISMATCH, Invalid."""
        return await self._store.change_group(group, change, version)


class Observing:
    """Looks at the fleet: `run_once` stores what machines there are and what it would do.

    Groups with a provider that acts are decided for by their leaders (`acting`).

    Machines are stored at every look, decisions at most once in `period_ms`: a thousand agents
    that join one after another are no reason to ask the scheduler a thousand times.

    Damping is remembered in memory only at this stage: a restart begins its windows anew, which
    can only make a scale-in wait longer.
    """

    def __init__(
        self,
        store: Store,
        book: FleetStore,
        fleet: Fleet,
        demand: Demand,
        clock: Clock,
        *,
        period_ms: Millis = 0,
    ) -> None:
        self._store = store
        self._book = book
        self._period_ms = period_ms
        self._decided_ms: Millis | None = None
        self._fleet = fleet
        self._demand = demand
        self._clock = clock
        self._states: dict[str, FleetState] = {}

    async def run_once(self) -> int:
        """Look once; return how many machines and decisions changed."""
        agents = self._fleet.agents()
        if agents is None:
            # Unknown is not empty: what was seen last stays.
            return 0
        groups = await self._all_groups()
        machines = machines_of(agents, groups, await self._book.all_records())
        changed = await self._store.sync_machines(machines)
        now_ms = self._clock.now_ms()
        if self._decided_ms is not None and now_ms - self._decided_ms < self._period_ms:
            return changed
        self._decided_ms = now_ms
        pools = sorted({m.pool for m in machines} | {g.pool for g in groups})
        for pool in pools:
            served = [machine for machine in machines if machine.pool == pool]
            changed += await self._look_at(pool, served, [g for g in groups if g.pool == pool])
        return changed

    async def _all_groups(self) -> list[Group]:
        groups: list[Group] = []
        while page := await self._store.list_groups(groups[-1].group if groups else "", 1_000):
            groups += page
        return groups

    async def _look_at(
        self, pool: str, machines: Sequence[Machine], groups: Sequence[Group]
    ) -> int:
        now_ms = self._clock.now_ms()
        view = await self._demand.view(pool, now_ms)
        if not groups:
            return await self._store.add_decision(unmanaged(pool, machines, view, now_ms))
        changed = 0
        for group in groups:
            if group.acts:
                # Its own leader decides, and says so.
                continue
            before = self._states.get(group.group, FleetState())
            decision, after = decide(group, machines, view, before, now_ms, alone=len(groups) == 1)
            self._states[group.group] = after
            changed += await self._store.add_decision(decision)
        return changed
