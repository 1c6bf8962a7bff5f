"""The acting loop of one elastic group: a master, and the workers that its queue asks for.

The listing, the records, the cap and the carrying out are those of every group (`acting`,
`executing`); what differs is the rule. State, orders and decision are one transaction, written
before anybody is told. Then applications are told what they shall be, machines are made and
removed, and those that shall sleep or wake do: in this order, so that a master hands work out
again before the power of who had it is cut. All of it follows from what is written, so each step
is repeated until the world agrees, whoever leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tenure_autoscaler import metrics
from tenure_autoscaler.acting import FleetActor
from tenure_autoscaler.application_orders import application_orders
from tenure_autoscaler.elastic_telling import told
from tenure_autoscaler.elastic_view import (
    config_of,
    heard_histories,
    listing_of,
    next_epoch,
    orders_of,
    settled,
    to_resume,
    to_suspend,
)
from tenure_autoscaler.executing import ANSWER_S, LeadershipOverError
from tenure_autoscaler.fleet_view import FleetLook
from tenure_autoscaler.providers.port import ProviderRefusedError
from tenure_autoscaler.values import Decision, Group, PoolView, SeenApplication
from tenure_core.autoscaling.elastic_group import GroupDecision, GroupInputs, decide, start
from tenure_core.autoscaling.group_ending import decide_end
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.heartbeats import HeartbeatHistory
from tenure_core.autoscaling.machines import LOGGED
from tenure_core.errors import WrongState
from tenure_core.timebase import Millis


class ElasticActor(FleetActor):
    """Acts for one elastic group while its claim holds."""

    _histories: dict[str, HeartbeatHistory] | None = None
    _rehearsed: GroupState | None = None
    """What a group that only decides would remember by now."""

    async def _view(self, group: Group, now_ms: Millis) -> PoolView:
        # What waits for the pool's nodes is nothing to this group: its queue is its master's.
        return PoolView(None, await self._around.demand.booked(group.pool, now_ms))

    async def _act(self, look: FleetLook) -> None:
        group = look.group
        if not self._provider.capabilities.suspends:
            message = f"Provider {group.provider} cannot suspend machines."
            await self._hold(group, "CANNOT_SUSPEND", message)
            return
        around, book = self._around, look.reckoning.book
        if self._histories is None:
            await around.applications.fence(self._claim)
        names = sorted(record.machine for record in book.records if record.live)
        applications = await around.applications.reports(names) if names else []
        acts = not (group.paused or group.dry_run)
        kept = book.memory.elastic if acts else self._rehearsed or book.memory.elastic
        decided, histories = self._decide(look, kept or GroupState(), applications)
        if not acts:
            self._rehearsed, self._histories = decided.state, histories
            await around.store.add_decision(self._told(look, decided, enacted=False))
            return
        self._rehearsed = None
        await self._carry_out(look, decided, applications)
        self._histories = histories

    def _decide(
        self, look: FleetLook, kept: GroupState, applications: Sequence[SeenApplication]
    ) -> tuple[GroupDecision, dict[str, HeartbeatHistory]]:
        config, first = config_of(look.group), self._histories is None
        histories = heard_histories(look, self._histories or {}, applications, config)
        state = settled(kept, look.reckoning.book)
        listing = listing_of(look, self.owner)
        if first or state.waiting:
            state = next_epoch(state, listing)
        inputs = GroupInputs(look.now_ms, listing, histories, self._claim.epoch)
        if look.group.size_max == 0:
            return decide_end(state, inputs, config), histories
        return (start if first else decide)(state, inputs, config), histories

    async def _carry_out(
        self, look: FleetLook, decided: GroupDecision, applications: Sequence[SeenApplication]
    ) -> None:
        around, can = self._around, self._provider.capabilities
        orders = orders_of(look, decided, can)
        memory = replace(look.reckoning.book.memory, elastic=orders.state)
        records = (*orders.written, *orders.noted)
        after = replace(look.reckoning.book.with_records(records), memory=memory)
        acted = orders.written or any(
            command.kind in LOGGED and not command.resent for command in decided.commands
        )
        number = 0
        if acted:
            try:
                number = await around.book.order(
                    self._claim, records, memory,
                    self._told(look, decided, enacted=True), besides=look.reckoning.besides,
                )  # fmt: skip
            except WrongState as error:
                # The group or another's machine changed meanwhile: decide anew from what is now.
                await self._hold(look.group, error.reason, error.message)
                return
        else:
            await around.book.write(self._claim, orders.noted, memory)
            await around.store.add_decision(self._told(look, decided, enacted=False))
        wanted = application_orders(orders.state, after, applications)
        if wanted:
            await around.applications.order(self._claim, wanted)
        executor = self._executor(memory)
        await executor.run(
            after.records,
            look.reckoning.strays,
            fresh=frozenset(record.token for record in orders.written),
        )
        results = dict(executor.results)
        results |= await self._each(to_suspend(orders.state, look), self._provider.suspend)
        results |= await self._each(to_resume(orders.state, look), self._provider.resume)
        results |= {order.agent: "TOLD_START" if order.start else "TOLD_STOP" for order in wanted}
        if number and results:
            await around.book.tell_results(self._claim, number, sorted(results.items()))

    async def _each(
        self, machines: Sequence[str], ask: Callable[[str], Awaitable[None]]
    ) -> dict[str, str]:
        """Ask the provider about each machine; what it refuses is asked again by the next run."""
        results = {}
        for machine in machines:
            if not self._leads():
                raise LeadershipOverError
            try:
                async with asyncio.timeout(ANSWER_S):
                    await ask(machine)
                results[machine] = "ASKED"
            except ProviderRefusedError as error:
                results[machine] = error.code
            except TimeoutError:
                results[machine] = "TIMED_OUT"
        return results

    def _told(self, look: FleetLook, decided: GroupDecision, *, enacted: bool) -> Decision:
        live = [record for record in look.reckoning.book.records if record.live]
        decision = told(look, decided, self._claim.epoch, enacted=enacted)
        metrics.decided(look.group.group, live, decision.target)
        return decision
