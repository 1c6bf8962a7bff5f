"""The acting loop of one group's fleet: list, take in, decide, write down, carry out.

Nothing is commanded before a complete listing of this very run, so a restart needs no special
case. Unknown is never nothing: without a listing or without the registry's word nothing is done;
without the queue's or the slot table's nothing is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tenure_autoscaler import metrics
from tenure_autoscaler.deciding import told
from tenure_autoscaler.executing import ANSWER_S, Executor
from tenure_autoscaler.fleet_view import FleetLook, decide, orders_of
from tenure_autoscaler.offering import Offer, nothing, offer
from tenure_autoscaler.ports import Applications, Demand, Fleet, FleetStore, Nodes, Occupancy, Store
from tenure_autoscaler.providers.port import Provider, ProviderListing, ProviderRefusedError
from tenure_autoscaler.reckoning import Reckoning, take_in
from tenure_autoscaler.records import FleetBook, FleetMemory, GroupClaim, MachineRecord
from tenure_autoscaler.values import Decision, Group, MachineState, PoolView, SeenAgent
from tenure_core.autoscaling.fleet import FleetDecision
from tenure_core.autoscaling.fleet_values import NodeOrder
from tenure_core.autoscaling.reconciliation import Grace
from tenure_core.errors import WrongState
from tenure_core.timebase import Clock, Millis


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an actor works with. `mark` tells this installation's machines from all others."""

    store: Store
    book: FleetStore
    fleet: Fleet
    demand: Demand
    nodes: Nodes
    occupancy: Occupancy
    applications: Applications
    clock: Clock
    mark: str = "tenure"
    grace: Grace = field(default_factory=Grace)


class FleetActor:
    """Acts for one group while its claim holds."""

    def __init__(
        self,
        claim: GroupClaim,
        provider: Provider,
        around: Surroundings,
        leads: Callable[[], bool],
    ) -> None:
        self._claim = claim
        self._provider = provider
        self._around = around
        self._leads = leads
        self.owner = f"{around.mark}/{claim.group}"

    async def run_once(self) -> None:
        """Act once. Raises NotFound GROUP_NOT_FOUND, Stale, LeadershipOverError, Unavailable."""
        around = self._around
        group = await around.store.get_group(self._claim.group)
        listing = await self._listing(group)
        agents = around.fleet.agents()
        if listing is None or agents is None:
            if agents is None:
                await self._hold(group, "REGISTRY_UNKNOWN", "The registry was not heard yet.")
            return
        now_ms = around.clock.now_ms()
        view = await self._view(group, now_ms)
        sights = {agent.agent: agent for agent in agents}
        reckoning = await self._take_in(listing, sights, view, now_ms)
        metrics.looked(group, reckoning.changed, now_ms)
        look = FleetLook(group, reckoning, sights, view, now_ms, listing.machines)
        await self._act(look)

    async def _view(self, group: Group, now_ms: Millis) -> PoolView:
        return await self._around.demand.view(group.pool, now_ms)

    async def _listing(self, group: Group) -> ProviderListing | None:
        """Return a complete listing, or None once it is told why there is none."""
        try:
            async with asyncio.timeout(ANSWER_S):
                listing = await self._provider.list_machines()
        except (ProviderRefusedError, TimeoutError) as error:
            code = error.code if isinstance(error, ProviderRefusedError) else "TIMED_OUT"
            await self._hold(group, "PROVIDER_AWAY", f"The provider does not list: {code}.")
            return None
        if not listing.complete:
            await self._hold(group, "INCOMPLETE_LISTING", "The provider's listing lacks a part.")
            return None
        return listing

    async def _hold(self, group: Group, rule: str, message: str) -> None:
        book = await self._around.book.open_book(group.group)
        live = sum(record.live for record in book.records)
        now_ms = self._around.clock.now_ms()
        decision = Decision(f"groups/{group.group}", now_ms, live, live, rule, message, ())
        await self._around.store.add_decision(decision)

    async def _take_in(
        self,
        listing: ProviderListing,
        sights: Mapping[str, SeenAgent],
        view: PoolView,
        now_ms: Millis,
    ) -> Reckoning:
        around = self._around
        # Read after the listing: an order written meanwhile must not be taken for a stray.
        book = await around.book.open_book(self._claim.group)
        busy = frozenset(b.node for b in view.bookings or () if b.span.contains(now_ms))
        reckoning = take_in(
            book, listing, sights, busy, owner=self.owner, now_ms=now_ms, grace=around.grace
        )
        for record in reckoning.changed:
            if record.state is MachineState.RUNNING and record.changed_ms == now_ms:
                # Its name may have served before; its node opens before it counts as serving.
                await around.nodes.unretire(self._claim, record.machine)
        if reckoning.changed:
            await around.book.write(self._claim, reckoning.changed, reckoning.book.memory)
        return reckoning

    async def _act(self, look: FleetLook) -> None:
        group, book = look.group, look.reckoning.book
        can = self._provider.capabilities
        decided = decide(look, can)
        written, carried = orders_of(look, decided, can)
        acts = not (group.paused or group.dry_run)
        if not acts:
            await self._tell(look, decided, carried, enacted=False)
            await self._offer(look, nothing(book), book)
            return
        memory = replace(book.memory, fleet=decided.state)
        number = 0
        if written:
            decision = self._decision(look, decided, carried, enacted=True)
            try:
                number = await self._around.book.order(
                    self._claim, written, memory, decision, besides=look.reckoning.besides
                )
            except WrongState as error:
                # The group or another's machine changed meanwhile: decide anew from what is now.
                await self._hold(group, error.reason, error.message)
                return
        else:
            await self._around.book.write(self._claim, [], memory)
            await self._tell(look, decided, carried, enacted=False)
        executor = self._executor(memory)
        after = replace(book.with_records(written), memory=memory)
        if look.view.bookings is not None:
            # Who cannot see what is booked must not take nodes back or put them off.
            offered = offer(look, after, can)
            executor.memory = await self._offer(look, offered, after)
        await executor.run(
            book.with_records(written).records,
            look.reckoning.strays,
            fresh=frozenset(record.token for record in written),
        )
        if number and executor.results:
            results = sorted(executor.results.items())
            await self._around.book.tell_results(self._claim, number, results)

    def _executor(self, memory: FleetMemory) -> Executor:
        return Executor(
            self._claim, memory, owner=self.owner, store=self._around.book,
            provider=self._provider, nodes=self._around.nodes, occupancy=self._around.occupancy,
            clock=self._around.clock, leads=self._leads, grace=self._around.grace,
        )  # fmt: skip

    async def _offer(self, look: FleetLook, told: Offer, book: FleetBook) -> FleetMemory:
        """Tell the slot table what is offered; return the memory with it.

        What is offered is in the database before it is told, and until it is taken back.
        """
        nodes, before = self._around.nodes, book.memory.offered
        kept = dict(told.offered) | {name: before[name] for name in told.withdrawn}
        memory = await self._remember(book.memory, kept)
        if told.wanted:
            await nodes.offer(self._claim, look.group, told.wanted)
        for name in told.withdrawn:
            if await nodes.retire(self._claim, name):
                del kept[name]
        return await self._remember(memory, kept)

    async def _remember(self, memory: FleetMemory, offered: dict[str, Millis]) -> FleetMemory:
        if memory.offered == offered:
            return memory
        memory = replace(memory, offered=dict(offered))
        await self._around.book.write(self._claim, [], memory)
        return memory

    async def _tell(
        self, look: FleetLook, decided: FleetDecision, orders: list[NodeOrder], *, enacted: bool
    ) -> None:
        decision = self._decision(look, decided, orders, enacted=enacted)
        await self._around.store.add_decision(decision)

    def _decision(
        self, look: FleetLook, decided: FleetDecision, orders: list[NodeOrder], *, enacted: bool
    ) -> Decision:
        records: tuple[MachineRecord, ...] = look.reckoning.book.records
        live = [record for record in records if record.live]
        base = told(look.group, len(live), decided, look.view, look.now_ms)
        metrics.decided(look.group.group, live, base.target)
        inputs = dict(base.inputs) | {
            "states": " ".join(f"{r.machine}:{r.state.value}" for r in live)[:2_000],
            "foreign": str(look.reckoning.foreign),
            "strays": str(len(look.reckoning.strays)),
            "orders": " ".join(f"{o.action.value}:{o.node_id or 'new'}:{o.reason}" for o in orders),
            "paused": str(look.group.paused),
            "dryRun": str(look.group.dry_run),
            "epoch": str(self._claim.epoch),
        }
        return replace(base, inputs=tuple(sorted(inputs.items())), enacted=enacted)
