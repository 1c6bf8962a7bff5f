"""What the autoscaler would do about one group, and why, in words.

Gathers what is known into the inputs of `tenure_core.autoscaling.fleet`, whose rules decide, and
turns its answer into a decision that people can read. Nothing is carried out at this stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tenure_autoscaler.records import MachineRecord
from tenure_autoscaler.values import (
    Booking,
    Decision,
    Group,
    GroupKind,
    Machine,
    MachineState,
    PoolView,
    SeenAgent,
)
from tenure_core.autoscaling.booked_demand import NodeBooking
from tenure_core.autoscaling.fleet import FleetDecision, FleetInputs, FleetState, decide_fleet
from tenure_core.autoscaling.fleet_values import FleetConfig, FleetNode, TypeTarget
from tenure_core.autoscaling.future_node import NodeState, StartKind
from tenure_core.autoscaling.machine_types import DEFAULT_TIMES, MachineType
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis

_STATES: Final = {
    MachineState.REQUESTED: NodeState.STARTING,
    MachineState.BOOTING: NodeState.STARTING,
    MachineState.RUNNING: NodeState.RUNNING,
    MachineState.DRAINING: NodeState.RUNNING,
    MachineState.REMOVING: NodeState.RUNNING,
}
_LEAVING: Final = (MachineState.DRAINING, MachineState.REMOVING)


def machines_of(
    agents: Sequence[SeenAgent], groups: Sequence[Group], records: Sequence[MachineRecord] = ()
) -> list[Machine]:
    """Return the machines that agents show or that were ordered, each with its group.

    A group that acts has what is written down as its own, and nothing else. Of the others, an
    agent's attribute names its group; without one, a pool's only group claims all of that pool's
    machines that have its amounts.
    """
    by_pool: dict[str, list[Group]] = {}
    for group in groups:
        if not group.acts:
            by_pool.setdefault(group.pool, []).append(group)
    sights = {seen.agent: seen for seen in agents}
    ordered = [_of_record(record, sights.get(record.machine)) for record in records]
    own = {machine.machine for machine in ordered}
    return ordered + [
        Machine(
            seen.agent,
            _claimed(seen, by_pool.get(seen.pool, [])),
            seen.pool,
            seen.state,
            seen.capacity,
            seen.changed_ms,
        )
        for seen in sorted(agents, key=lambda seen: seen.agent)
        if seen.agent not in own
    ]


def _of_record(record: MachineRecord, seen: SeenAgent | None) -> Machine:
    state, changed_ms = record.state, record.changed_ms
    if state is MachineState.RUNNING and record.asleep:
        state = MachineState.SUSPENDED
    elif state is MachineState.RUNNING and seen is not None and seen.state is not state:
        state, changed_ms = seen.state, seen.changed_ms
    return Machine(
        record.machine, record.group, record.pool, state, record.amounts, changed_ms,
        provider_id=record.provider_id,
    )  # fmt: skip


def _claimed(seen: SeenAgent, groups: list[Group]) -> str:
    if seen.group:
        return seen.group if seen.group in {group.group for group in groups} else ""
    if len(groups) == 1 and groups[0].amounts.fits_in(seen.capacity):
        return groups[0].group
    return ""


def decide(
    group: Group,
    machines: Sequence[Machine],
    view: PoolView,
    state: FleetState,
    now_ms: Millis,
    *,
    alone: bool = True,
) -> tuple[Decision, FleetState]:
    """Return what would be done about a group, from its pool's machines and demand.

    `alone`: no other group serves the pool, so booked nodes without a machine are this one's.
    """
    mine = [machine for machine in machines if machine.group == group.group and machine.serves]
    if group.kind is GroupKind.ELASTIC:
        held = Decision(
            f"groups/{group.group}", now_ms, len(mine), len(mine), "NO_MEASUREMENT",
            "No master of this group reports its queue, so its size is left alone.", (),
        )  # fmt: skip
        return held, state
    kind = MachineType(
        group.group,
        group.amounts,
        max_count=group.size_max,
        times=replace(DEFAULT_TIMES, boot_p95_ms=group.boot_ms),
    )
    bookings = view.bookings or ()
    nodes = [_node(machine, bookings, now_ms) for machine in machines if machine.serves]
    if alone:
        known = {node.node_id for node in nodes}
        absent = sorted({booking.node for booking in bookings} - known)
        nodes += [FleetNode(name, group.group, NodeState.ABSENT) for name in absent]
    inputs = FleetInputs(
        now_ms,
        nodes,
        [NodeBooking(each.node, each.span, each.amounts) for each in bookings],
        # Without the bookings nobody knows what is free, so the queue's need is unknown too.
        None if view.bookings is None else view.waiting,
    )
    config = FleetConfig(group.size_max, min_nodes={group.group: group.size_min})
    decided = decide_fleet(state, inputs, [kind], config)
    return told(group, len(mine), decided, view, now_ms), decided.state


def _node(machine: Machine, bookings: Sequence[Booking], now_ms: Millis) -> FleetNode:
    active = [b for b in bookings if b.node == machine.machine and b.span.contains(now_ms)]
    state = _STATES[machine.state]
    return FleetNode(
        machine.machine,
        machine.group,
        state,
        since_ms=max(0, now_ms - machine.changed_ms),
        busy=bool(active),
        starting=StartKind.BOOT if state is NodeState.STARTING else None,
        free=free_amounts(machine.amounts, active),
        removing=machine.state.value if machine.state in _LEAVING else "",
    )


def free_amounts(amounts: ResourceVector, active: Sequence[Booking]) -> ResourceVector:
    """Return what active bookings leave of a machine."""
    return ResourceVector(
        {
            kind: max(0, amount - sum(booking.amounts[kind] for booking in active))
            for kind, amount in amounts.items()
        }
    )


def told(
    group: Group, current: int, decided: FleetDecision, view: PoolView, now_ms: Millis
) -> Decision:
    """Return a decision in words, with what it was made from."""
    target = decided.targets[group.group]
    rule = _rule(current, target, decided.reason)
    inputs = {
        "queue": str(target.queue),
        "queueDamped": str(target.queue_damped),
        "booked": str(target.booked.peak),
        "leadMs": str(target.booked.lead_ms),
        "sizeMin": str(group.size_min),
        "sizeMax": str(group.size_max),
        "damping": target.damping_reason,
        "waiting": "unknown" if view.waiting is None else str(len(view.waiting)),
        "bookings": "unknown" if view.bookings is None else str(len(view.bookings)),
        "orders": str(len(decided.orders)),
    }
    return Decision(
        f"groups/{group.group}",
        now_ms,
        current,
        target.size,
        rule,
        _MESSAGES[rule].format(current=current, target=target.size, maximum=group.size_max),
        tuple(sorted(inputs.items())),
    )


def _rule(current: int, target: TypeTarget, reason: str) -> str:
    if target.size > current:
        if target.booked.peak >= target.size:
            return "BOOKED"
        return "BACKLOG" if target.queue_damped > current else "MINIMUM"
    if reason == "QUEUE_UNKNOWN":
        return "QUEUE_UNKNOWN"
    if target.capped and target.size == current:
        return "AT_LIMIT"
    return "IDLE" if target.size < current else "HOLD"


_MESSAGES: Final = {
    "BOOKED": "{target} machines are booked within the time that a machine needs to start.",
    "BACKLOG": "What waits now asks for {target} machines; {current} serve.",
    "MINIMUM": "The group keeps at least {target} machines; {current} serve.",
    "QUEUE_UNKNOWN": "The queue cannot be seen, so nothing is given up; {current} serve.",
    "AT_LIMIT": "More is asked for than the {maximum} machines that the group may have.",
    "IDLE": "{target} machines are enough for what is booked and what waits; {current} serve.",
    "HOLD": "{current} machines are what is asked for.",
}


def unmanaged(pool: str, machines: Sequence[Machine], view: PoolView, now_ms: Millis) -> Decision:
    """Return the decision about a pool that no group serves: there is nothing to size."""
    count = sum(machine.serves for machine in machines)
    waiting = "unknown" if view.waiting is None else str(len(view.waiting))
    return Decision(
        f"pools/{pool}",
        now_ms,
        count,
        count,
        "NO_GROUP",
        f"No group sizes this pool; its {count} machines are left alone.",
        (("waiting", waiting),),
    )
