"""One decision of a pool's fleet: how many machines of each type, and what to do with each node.

target = max(queue-driven, booked) + headroom, between the minimum and the maximum. Every node
follows the rule of `future_node` for its own booking; what that rule would let go stays as long
as the target needs it, and never more goes at once than the budgets and buckets allow. The caller
closes a node (`RetireNode` if unbooked) before it asks the provider to remove its machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tenure_core.autoscaling.booked_demand import (
    BookedDemand,
    Later,
    NodeBooking,
    booked_demand,
    booked_later,
    next_booking_in_ms,
)
from tenure_core.autoscaling.damping import DampingState, after_change, damped
from tenure_core.autoscaling.disruption import TokenBucket
from tenure_core.autoscaling.fleet_orders import OrderSheet
from tenure_core.autoscaling.fleet_values import (
    FleetConfig,
    FleetNode,
    NodeOrder,
    TypeTarget,
    booting,
)
from tenure_core.autoscaling.future_node import NodeState
from tenure_core.autoscaling.lead_times import launch_backlog_ms
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.autoscaling.open_machines import FreeMachine
from tenure_core.autoscaling.queue_packing import Packing, WaitingLease, pack
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class FleetState:
    """What a fleet must remember: damping by type, and its rates."""

    damping: Mapping[str, DampingState] = field(default_factory=dict)
    creations: TokenBucket = field(default_factory=lambda: TokenBucket(60, 20))
    removals: TokenBucket = field(default_factory=lambda: TokenBucket(60, 20))


@dataclass(frozen=True, slots=True)
class FleetInputs:
    """What a decision sees. `waiting` is in queue order; None means that nobody knows (P12).

    `bookings` is the slot table's forecast by node; `nodes` holds every node of the pool, ABSENT
    ones included when they are booked.
    """

    now_ms: Millis
    nodes: Sequence[FleetNode]
    bookings: Sequence[NodeBooking] = ()
    waiting: Sequence[WaitingLease] | None = ()
    listing_complete: bool = True


@dataclass(frozen=True, slots=True)
class FleetDecision:
    """The next state, the orders in the order to carry them out, and why.

    `reasons` counts what the rule says of the nodes, as ACTION:reason, ordered or not (P27).
    """

    state: FleetState
    orders: tuple[NodeOrder, ...]
    targets: Mapping[str, TypeTarget] = field(default_factory=dict)
    packing: Packing | None = None
    reason: str = "DECIDED"
    reasons: Mapping[str, int] = field(default_factory=dict)


def decide_fleet(
    state: FleetState,
    inputs: FleetInputs,
    types: Sequence[MachineType],
    config: FleetConfig,
) -> FleetDecision:
    """Return the decision for all types of a pool. Deterministic.

    Without a complete listing nothing is ordered (P22). Without knowledge of the queue the size
    follows the bookings alone and nothing is removed for want of demand (P12).
    """
    config.checked(types)
    if not inputs.listing_complete:
        return FleetDecision(state, (), reason="INCOMPLETE_LISTING")
    gaps = next_booking_in_ms(inputs.bookings, now_ms=inputs.now_ms, horizon_ms=config.horizon_ms)
    packing = _packed(inputs, types, config)
    dampings = dict(state.damping)
    targets = {}
    for kind in types:
        targets[kind.name], dampings[kind.name] = _target(
            kind, inputs, packing, config, dampings.get(kind.name, DampingState())
        )
    targets = within_total(targets, config)
    sheet = OrderSheet(
        inputs.nodes, gaps, targets, config, now_ms=inputs.now_ms,
        creations=state.creations, removals=state.removals,
        may_remove=packing is not None,
    )  # fmt: skip
    for kind in types:
        sheet.order(kind)
        dampings[kind.name] = after_change(
            dampings[kind.name], grew=sheet.grew(kind), shrank=sheet.shrank(kind),
            now_ms=inputs.now_ms,
        )  # fmt: skip
    return FleetDecision(
        FleetState(dampings, sheet.creations, sheet.removals),
        sheet.orders(), targets, packing,
        "DECIDED" if packing is not None else "QUEUE_UNKNOWN", dict(sheet.reasons),
    )  # fmt: skip


def within_total(targets: Mapping[str, TypeTarget], config: FleetConfig) -> dict[str, TypeTarget]:
    """Return targets that together keep to `max_nodes`: minima first, then bookings, then the rest.

    Types are served in the order given, so the pool's order of types is its order of preference.
    """
    left = config.max_nodes
    shares = dict.fromkeys(targets, 0)
    levels: tuple[Callable[[str, TypeTarget], int], ...] = (
        lambda name, target: min(target.size, config.min_nodes.get(name, 0)),
        lambda _, target: min(target.size, target.booked.peak),
        lambda _, target: target.size,
    )
    for level in levels:
        for name, target in targets.items():
            more = min(left, max(0, level(name, target) - shares[name]))
            shares[name] += more
            left -= more
    return {
        name: replace(target, size=shares[name], capped=target.capped or shares[name] < target.size)
        for name, target in targets.items()
    }


def _packed(
    inputs: FleetInputs, types: Sequence[MachineType], config: FleetConfig
) -> Packing | None:
    if inputs.waiting is None:
        return None
    later = booked_later(inputs.bookings, now_ms=inputs.now_ms)
    taken = Counter(node.type_name for node in inputs.nodes if node.exists or node.node_id in later)
    room = {kind.name: config.type_max(kind) - taken[kind.name] for kind in types}
    asleep = Counter(node.type_name for node in inputs.nodes if node.state is NodeState.SUSPENDED)
    room = {name: max(0, left) + asleep[name] for name, left in room.items()}
    return pack(
        inputs.waiting, _free_machines(inputs, types, later), types, room=room,
        room_total=max(0, config.max_nodes - taken.total()) + asleep.total(),
        expander=config.expander, now_ms=inputs.now_ms,
    )  # fmt: skip


def _free_machines(
    inputs: FleetInputs, types: Sequence[MachineType], later: Mapping[str, Later]
) -> list[FreeMachine]:
    """Return what may be packed onto, with what is booked there later.

    Booked nodes without a machine count too: theirs may be bought before its time.
    """
    kinds = {kind.name: kind for kind in types}
    free = []
    for node in inputs.nodes:
        booked, kind = later.get(node.node_id), kinds.get(node.type_name)
        coming = node.state is NodeState.ABSENT and kind is not None
        full = node.busy and not node.free
        if full or not (node.usable or (coming and booked is not None)):
            continue
        if booked is None:
            free.append(FreeMachine(node.type_name, node.free, in_use=node.busy))
            continue
        capacity = node.free if kind is None else kind.capacity
        until_ms = booked.in_ms
        if coming and kind is not None:
            if not kind.available_at(inputs.now_ms):
                continue
            until_ms -= kind.times.boot_p95_ms
        free.append(
            FreeMachine(
                node.type_name,
                capacity if coming else node.free,
                in_use=node.busy,
                until_ms=max(0, until_ms),
                later=booked.leaves(capacity),
                coming=coming,
            )
        )
    return free


def _target(
    kind: MachineType,
    inputs: FleetInputs,
    packing: Packing | None,
    config: FleetConfig,
    damping: DampingState,
) -> tuple[TypeTarget, DampingState]:
    mine = [node for node in inputs.nodes if node.type_name == kind.name]
    up = [node for node in mine if node.usable]
    names = frozenset(node.node_id for node in mine)
    booked = booked_demand(
        [booking for booking in inputs.bookings if booking.node_id in names], kind,
        ready_nodes=frozenset(node.node_id for node in up), now_ms=inputs.now_ms,
        backlog_ms=launch_backlog_ms(kind, booting(mine)),
    )  # fmt: skip
    queue = len(up)
    if packing is not None:
        queue = sum(node.busy for node in up)
        queue += packing.opened.get(kind.name, 0) + packing.machines.get(kind.name, 0)
    held = damped(damping, config.damping, recommended=queue, present=len(up), now_ms=inputs.now_ms)
    return _limited(kind, booked, queue, held.size, held.reason, config), held.state


def _limited(
    kind: MachineType, booked: BookedDemand, queue: int, damped_queue: int, reason: str,
    config: FleetConfig,
) -> TypeTarget:  # fmt: skip
    wanted = max(damped_queue, booked.peak) + config.headroom.get(kind.name, 0)
    smallest = min(config.min_nodes.get(kind.name, 0), config.type_max(kind))
    size = max(smallest, min(wanted, config.type_max(kind)))
    return TypeTarget(queue, damped_queue, booked, size, reason, capped=wanted > size)
