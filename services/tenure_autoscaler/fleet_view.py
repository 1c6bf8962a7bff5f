"""A fleet's records as the core's rule sees them, and its orders as records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tenure_autoscaler.deciding import free_amounts
from tenure_autoscaler.providers.port import Capabilities, ProvidedMachine
from tenure_autoscaler.reckoning import PRESENT, Reckoning
from tenure_autoscaler.records import FleetBook, MachineRecord, free_name, ordered
from tenure_autoscaler.values import Booking, Group, MachineState, PoolView, SeenAgent
from tenure_core.autoscaling.booked_demand import NodeBooking
from tenure_core.autoscaling.fleet import FleetDecision, FleetInputs, decide_fleet
from tenure_core.autoscaling.fleet_values import FleetConfig, FleetNode, NodeOrder
from tenure_core.autoscaling.future_node import NodeAction, NodeState, StartKind
from tenure_core.autoscaling.group_config import Damping
from tenure_core.autoscaling.lead_times import Measured, measured_times, replacing_ms
from tenure_core.autoscaling.machine_types import DEFAULT_TIMES, MachineType
from tenure_core.timebase import MINUTE_MS, SECOND_MS, Millis

GIVE_UP_MS: Final[Millis] = 5 * MINUTE_MS
"""A machine that its provider lists and whose agent says nothing for so long is removed (P05)."""

GUARD_MS: Final[Millis] = 2 * SECOND_MS
HALT_MAX_MS: Final[Millis] = 15 * MINUTE_MS
STARTING: Final = (MachineState.REQUESTED, MachineState.BOOTING)


@dataclass(frozen=True, slots=True)
class FleetLook:
    """Everything that one decision is made from."""

    group: Group
    reckoning: Reckoning
    sights: Mapping[str, SeenAgent]
    view: PoolView
    now_ms: Millis
    listed: tuple[ProvidedMachine, ...] = ()


def machine_type(group: Group, boots: Measured, can: Capabilities, look: FleetLook) -> MachineType:
    """Return the group's machine type with its boots as measured."""
    times = replace(
        DEFAULT_TIMES,
        boot_p95_ms=group.boot_ms,
        guard_ms=GUARD_MS + group.boot_ms // 10,
        idle_suspend_after_ms=group.idle_ms,
        idle_terminate_after_ms=group.idle_ms,
    )
    times = measured_times(times, boot=boots, resume=Measured(), suspend=Measured())
    return MachineType(
        group.group,
        group.amounts,
        can_suspend=False,
        max_count=group.size_max,
        launches_per_minute=can.launches_per_minute,
        replace_ms=replacing_ms(times, boots),
        times=times,
        backoff=look.reckoning.book.memory.backoff,
    )


def decide(look: FleetLook, can: Capabilities) -> FleetDecision:
    """Return what the rule orders for a group's fleet."""
    group, book = look.group, look.reckoning.book
    nodes = fleet_nodes(look)
    kind = machine_type(group, book.memory.boots, can, look)
    config = fleet_config(look)
    bookings = look.view.bookings
    inputs = FleetInputs(
        look.now_ms,
        nodes,
        [NodeBooking(each.node, each.span, each.amounts) for each in bookings or ()],
        None if bookings is None else look.view.waiting,
    )
    return decide_fleet(book.memory.fleet, inputs, [kind], config)


def fleet_config(look: FleetLook) -> FleetConfig:
    """Return the group's settings as the rule takes them."""
    group = look.group
    others = sum(node.type_name != group.group for node in fleet_nodes(look))
    window_ms = min(Damping().in_window_ms, group.idle_ms)
    return FleetConfig(
        # The machines of others carry load too but count against no cap of ours.
        group.size_max + others,
        min_nodes={group.group: group.size_min},
        damping=Damping(in_window_ms=window_ms, in_cooldown_ms=window_ms),
    )


def fleet_nodes(look: FleetLook) -> list[FleetNode]:
    """Return every node of the pool: ours, what is ours without a record, others', and absent."""
    group, bookings, now_ms = look.group, look.view.bookings or (), look.now_ms
    ours = {record.machine: record for record in look.reckoning.book.records if record.live}
    # Agents of these names are the last signs of machines that have ended.
    ended = {record.machine for record in look.reckoning.book.records if not record.live}
    active: dict[str, list[Booking]] = {}
    for booking in bookings:
        if booking.span.contains(now_ms):
            active.setdefault(booking.node, []).append(booking)
    nodes = [_our_node(record, active.get(record.machine, []), now_ms) for record in ours.values()]
    nodes += [
        FleetNode(f"stray/{number}", group.group, NodeState.RUNNING, busy=True, removing="STRAY")
        for number in range(look.reckoning.besides)
    ]
    others = [
        sight
        for name, sight in sorted(look.sights.items())
        if name not in ours and sight.pool == group.pool and sight.state in PRESENT
        and name not in ended
    ]  # fmt: skip
    for sight in others:
        works = active.get(sight.agent, [])
        free = free_amounts(sight.capacity, works)
        nodes.append(FleetNode(sight.agent, "", NodeState.RUNNING, busy=bool(works), free=free))
    present = {node.node_id for node in nodes}
    offered = set(look.reckoning.book.memory.offered)
    absent = offered | (ended & {booking.node for booking in bookings})
    nodes += [FleetNode(name, group.group, NodeState.ABSENT) for name in sorted(absent - present)]
    return nodes


def _our_node(record: MachineRecord, active: Sequence[Booking], now_ms: Millis) -> FleetNode:
    starting = record.state in STARTING
    idle_ms = 0 if record.idle_since_ms is None else now_ms - record.idle_since_ms
    removing = ""
    if record.state in (MachineState.DRAINING, MachineState.REMOVING):
        removing = record.reason or "idle"
    elif record.silent_since_ms is not None:
        removing = "SILENT"
    return FleetNode(
        record.machine,
        record.group,
        NodeState.STARTING if starting else NodeState.RUNNING,
        since_ms=max(0, now_ms - record.ordered_ms if starting else idle_ms),
        busy=not starting and (bool(active) or record.idle_since_ms is None),
        starting=StartKind.BOOT if starting else None,
        launch_wait_ms=record.launch_wait_ms if starting else 0,
        free=free_amounts(record.amounts, active),
        removing=removing,
    )


def orders_of(
    look: FleetLook, decided: FleetDecision, can: Capabilities
) -> tuple[list[MachineRecord], list[NodeOrder]]:
    """Return the records that carry a decision out, and the orders that they come from."""
    book, now_ms = look.reckoning.book, look.now_ms
    written: list[MachineRecord] = []
    carried: list[NodeOrder] = []
    for order in decided.orders:
        record = _record_for(look, order, book, can)
        if record is not None:
            written.append(record)
            carried.append(order)
            book = book.with_records([record])
    if may_remove(look):
        for record in _given_up(look):
            written.append(record.turned(MachineState.DRAINING, now_ms, "SILENT"))
            carried.append(
                NodeOrder(NodeAction.TERMINATE, look.group.group, "silent", record.machine)
            )
    return written, carried


def may_remove(look: FleetLook) -> bool:
    """Say whether anything may be removed: not while much of the fleet is silent at once (P06)."""
    since_ms = look.reckoning.book.memory.silent_since_ms
    return since_ms is None or look.now_ms - since_ms > HALT_MAX_MS


def _record_for(
    look: FleetLook, order: NodeOrder, book: FleetBook, can: Capabilities
) -> MachineRecord | None:
    by_name = {record.machine: record for record in book.records}
    now_ms = look.now_ms
    if order.action is NodeAction.BOOT:
        name = order.node_id or free_name(look.group, can.names, book.taken, look.sights.keys())
        if name is None or name in book.taken or (can.names is not None and name not in can.names):
            return None
        sight = look.sights.get(name)
        return ordered(
            look.group, book, name, now_ms, before=sight.incarnation if sight else "",
            wait_ms=order.launch_wait_ms, reason=order.reason,
        )  # fmt: skip
    record = by_name.get(order.node_id)
    if record is None or not may_remove(look):
        return None
    if order.action is NodeAction.TERMINATE and record.state is MachineState.RUNNING:
        return record.turned(MachineState.DRAINING, now_ms, order.reason)
    if order.action is NodeAction.REPLACE and record.state in STARTING:
        return record.turned(MachineState.DRAINING, now_ms, order.reason)
    return None


def _given_up(look: FleetLook) -> list[MachineRecord]:
    return [
        record
        for record in look.reckoning.book.records
        if record.state is MachineState.RUNNING
        and record.silent_since_ms is not None
        and look.now_ms - record.silent_since_ms > GIVE_UP_MS
    ]
