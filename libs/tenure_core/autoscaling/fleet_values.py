"""The values of a fleet: nodes, settings, targets, orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tenure_core.autoscaling.booked_demand import BookedDemand
from tenure_core.autoscaling.disruption import DisruptionBudget
from tenure_core.autoscaling.future_node import NodeAction, NodeState, StartKind
from tenure_core.autoscaling.group_config import Damping
from tenure_core.autoscaling.machine_types import Expander, MachineType
from tenure_core.errors import Invalid, Violation
from tenure_core.resources import ResourceVector
from tenure_core.timebase import DAY_MS, Millis


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node of a pool and the machine behind it, if any.

    `since_ms` is for how long it has been idle, asleep or starting. `free` is what its leases
    leave. `launch_wait_ms` is that of the order by which it boots. `leaves_in_ms` is the notice of
    a spot interruption. `removing` marks a machine that is being drained or removed already.
    """

    node_id: str
    type_name: str
    state: NodeState
    since_ms: Millis = 0
    busy: bool = False
    starting: StartKind | None = None
    launch_wait_ms: Millis = 0
    free: ResourceVector = field(default_factory=ResourceVector)
    leaves_in_ms: Millis | None = None
    removing: str = ""

    @property
    def exists(self) -> bool:
        """Say whether there is a machine that counts towards the cap."""
        return self.state is not NodeState.ABSENT

    @property
    def usable(self) -> bool:
        """Say whether it runs or starts and is to stay."""
        up = self.state in (NodeState.RUNNING, NodeState.STARTING)
        return up and not self.removing and self.leaves_in_ms is None


def booting(nodes: Sequence[FleetNode]) -> list[tuple[Millis, Millis]]:
    """Return of each booting machine for how long it is on order, and its launch wait."""
    return [
        (node.since_ms, node.launch_wait_ms)
        for node in nodes
        if node.state is NodeState.STARTING and node.starting is not StartKind.RESUME
    ]


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """The settings of a pool's fleet, counts by machine type.

    `max_nodes` caps all machines that exist, whatever their state. `warm` machines are kept
    asleep rather than terminated. `headroom` runs beyond the demand.
    """

    max_nodes: int
    min_nodes: Mapping[str, int] = field(default_factory=dict)
    headroom: Mapping[str, int] = field(default_factory=dict)
    warm: Mapping[str, int] = field(default_factory=dict)
    expander: Expander = Expander.CHEAPEST
    horizon_ms: Millis = 30 * DAY_MS
    damping: Damping = field(default_factory=Damping)
    budgets: tuple[DisruptionBudget, ...] = ()

    def type_max(self, kind: MachineType) -> int:
        """Return the most machines of a type that may exist."""
        return min(kind.max_count, self.max_nodes)

    def checked(self, types: Sequence[MachineType]) -> FleetConfig:
        """Return the settings themselves. Raises Invalid with every violation found."""
        found = [
            Violation(f"{name}.{key}", "OUT_OF_RANGE", "zero or more")
            for name in ("min_nodes", "headroom", "warm")
            for key, count in getattr(self, name).items()
            if count < 0
        ]
        known = {kind.name for kind in types}
        found += [
            Violation(f"min_nodes.{key}", "UNKNOWN_TYPE", "names a machine type of the pool")
            for key in self.min_nodes
            if key not in known
        ]
        if self.max_nodes < 0 or sum(self.min_nodes.values()) > self.max_nodes:
            found.append(Violation("max_nodes", "OUT_OF_RANGE", "at least the sum of min_nodes"))
        if found:
            raise Invalid(found, "INVALID_FLEET_CONFIG")
        return self


@dataclass(frozen=True, slots=True)
class TypeTarget:
    """The target of one type and what it was made of (P27)."""

    queue: int
    queue_damped: int
    booked: BookedDemand
    size: int
    damping_reason: str
    capped: bool = False


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """One thing to do with one node; an empty `node_id` is a machine without a node yet.

    `late` says that a booking will not find its node ready all the same. `launch_wait_ms` is when
    the provider is expected to begin with a boot; a start is overdue only after that.
    """

    action: NodeAction
    type_name: str
    reason: str
    node_id: str = ""
    late: bool = False
    launch_wait_ms: Millis = 0
