"""What each node of a fleet is told, within the caps, budgets and rates.

Bookings first, in the order of their starts; then what the target lacks, the quickest means
first; then what nobody needs any more. Nothing here decides how many there should be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tenure_core.autoscaling.disruption import TokenBucket, allowance
from tenure_core.autoscaling.fleet_values import (
    FleetConfig,
    FleetNode,
    NodeOrder,
    TypeTarget,
    booting,
)
from tenure_core.autoscaling.future_node import (
    BookedNode,
    NodeAction,
    NodeDecision,
    NodeState,
    decide_node,
)
from tenure_core.autoscaling.lead_times import boot_lead_ms, launch_backlog_ms, launch_gap_ms
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.timebase import Millis

_GROWING = (NodeAction.BOOT, NodeAction.RESUME)
_SHRINKING = (NodeAction.SUSPEND, NodeAction.TERMINATE)
IDLE = "idle"


class OrderSheet:
    """Gathers the orders of one decision; lives for that decision only."""

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        gaps: Mapping[str, Millis],
        targets: Mapping[str, TypeTarget],
        config: FleetConfig,
        *,
        now_ms: Millis,
        creations: TokenBucket,
        removals: TokenBucket,
        may_remove: bool,
    ) -> None:
        self.creations = creations
        self.reasons: Counter[str] = Counter()
        self.removals = removals
        self._by_type: dict[str, list[FleetNode]] = {}
        for node in nodes:
            self._by_type.setdefault(node.type_name, []).append(node)
        self._gaps = gaps
        self._targets = targets
        self._config = config
        self._now_ms = now_ms
        self._may_remove = may_remove
        self._exist = Counter(node.type_name for node in nodes if node.exists)
        self._disrupted = Counter(node.removing for node in nodes if node.removing)
        self._orders: list[NodeOrder] = []
        self._next_launch_ms: Millis = 0

    def orders(self) -> tuple[NodeOrder, ...]:
        """Return the orders in the order to carry them out."""
        return tuple(self._orders)

    def grew(self, kind: MachineType) -> bool:
        """Say whether machines of the type were ordered to come."""
        return any(o.type_name == kind.name and o.action in _GROWING for o in self._orders)

    def shrank(self, kind: MachineType) -> bool:
        """Say whether machines of the type were ordered to go."""
        return any(o.type_name == kind.name and o.action in _SHRINKING for o in self._orders)

    def order(self, kind: MachineType) -> None:
        """Write down what the nodes of `kind` are told."""
        nodes = self._by_type.get(kind.name, [])
        self._next_launch_ms = launch_backlog_ms(kind, booting(nodes))
        verdicts = {node.node_id: self._verdict(node, kind) for node in nodes}
        self.reasons.update(f"{v.action}:{v.reason}" for v in verdicts.values())
        up = sum(node.usable for node in nodes)
        ordered: set[str] = set()
        urgent = sorted(
            (node for node in nodes if node.node_id in self._gaps),
            key=lambda node: (self._gaps[node.node_id], node.node_id),
        )
        unbooked = [node for node in nodes if node.node_id not in self._gaps]
        for node in [*urgent, *unbooked]:
            verdict = verdicts[node.node_id]
            if verdict.action is NodeAction.REPLACE:
                up -= 1
                self._replace(node, kind, verdict)
                ordered.add(node.node_id)
            elif verdict.action in _GROWING:
                came = self._grow(verdict.action, kind, verdict.reason, node, late=verdict.late)
                up += came
                ordered.add(node.node_id)
                if not came and not self._room(kind):
                    up -= self._make_room(kind, unbooked, ordered)
        up += self._fill(kind, nodes, ordered, lacking=self._targets[kind.name].size - up)
        self._release(kind, nodes, verdicts, ordered, spare=up - self._targets[kind.name].size)

    def _verdict(self, node: FleetNode, kind: MachineType) -> NodeDecision:
        """Apply the node's own rule; a start counts from its launch, not from its order."""
        if node.removing:
            return NodeDecision(NodeAction.WAIT, "being_removed")
        gap = self._gaps.get(node.node_id)
        if node.state is NodeState.ABSENT and gap is not None:
            # The whole of what must be launched sets the lead, not this node alone.
            extra = self._targets[kind.name].booked.lead_ms - boot_lead_ms(kind, 1)
            verdict = decide_node(
                BookedNode(node.state, next_booking_in_ms=gap - max(0, extra)), kind.times
            )
            return NodeDecision(
                verdict.action, verdict.reason, late=verdict.late and gap < kind.times.boot_p95_ms
            )
        return decide_node(
            BookedNode(
                node.state,
                max(0, node.since_ms - node.launch_wait_ms),
                node.busy,
                node.starting,
                gap,
            ),
            kind.times,
        )

    def _room(self, kind: MachineType) -> bool:
        config = self._config
        return (
            self._exist[kind.name] < config.type_max(kind)
            and self._exist.total() < config.max_nodes
        )

    def _grow(
        self, action: NodeAction, kind: MachineType, reason: str, node: FleetNode | None = None,
        *, late: bool = False,
    ) -> int:  # fmt: skip
        """Order one machine to come, if caps, rate and back-off allow; return how many come."""
        wait_ms = 0
        if action is NodeAction.BOOT:
            allowed = (
                self._room(kind)
                and kind.available_at(self._now_ms)
                and self.creations.available(self._now_ms) > 0
            )
            if not allowed:
                return 0
            self.creations = self.creations.taken(1, self._now_ms)
            self._exist[kind.name] += 1
            wait_ms = self._next_launch_ms
            self._next_launch_ms += launch_gap_ms(kind)
        name = node.node_id if node else ""
        self._orders.append(NodeOrder(action, kind.name, reason, name, late, wait_ms))
        return 1

    def _make_room(
        self, kind: MachineType, unbooked: Sequence[FleetNode], ordered: set[str]
    ) -> int:
        """Let an idle machine without booking go, because a booked one has no place (P25)."""
        idle = [
            node
            for node in unbooked
            if node.state in (NodeState.SUSPENDED, NodeState.RUNNING)
            and not node.busy
            and not node.removing
            and node.node_id not in ordered
        ]
        if not idle or not self._may_disrupt(unbooked):
            return 0
        gone = min(idle, key=lambda n: (n.state is NodeState.RUNNING, -n.since_ms, n.node_id))
        ordered.add(gone.node_id)
        self._orders.append(
            NodeOrder(NodeAction.TERMINATE, kind.name, "makes_room_for_booking", gone.node_id)
        )
        return int(gone.usable)

    def _replace(self, node: FleetNode, kind: MachineType, verdict: NodeDecision) -> None:
        """Give up a start that is overdue; its booking or the target will order another."""
        self._orders.append(
            NodeOrder(
                NodeAction.REPLACE, kind.name, verdict.reason, node.node_id, late=verdict.late
            )
        )

    def _fill(
        self, kind: MachineType, nodes: Sequence[FleetNode], ordered: set[str], *, lacking: int
    ) -> int:
        """Gain what the target lacks: sleeping machines first, then new ones.

        New machines back nodes that the slot table has already: the unbooked, then those whose
        booking is furthest, as the packing supposed.
        """
        gained = 0
        for node in nodes:
            if gained >= lacking:
                break
            sleeps = node.state is NodeState.SUSPENDED and not node.removing
            if sleeps and node.node_id not in ordered:
                gained += self._grow(NodeAction.RESUME, kind, "target", node)
                ordered.add(node.node_id)
        unbacked = [
            node for node in nodes if node.state is NodeState.ABSENT and node.node_id not in ordered
        ]
        places = [node for node in unbacked if node.node_id not in self._gaps]
        booked = [node for node in unbacked if node.node_id in self._gaps]
        if len(booked) + self._exist[kind.name] >= self._config.type_max(kind):
            # There is no room for machines beside those that are to come for bookings.
            places += sorted(booked, key=lambda node: (-self._gaps[node.node_id], node.node_id))
        while gained < lacking:
            place = places.pop(0) if places else None
            if not self._grow(NodeAction.BOOT, kind, "target", place):
                break
            gained += 1
        return gained

    def _release(
        self,
        kind: MachineType,
        nodes: Sequence[FleetNode],
        verdicts: Mapping[str, NodeDecision],
        ordered: set[str],
        *,
        spare: int,
    ) -> None:
        """Let go what nobody needs, longest idle first, within target, budgets and rate."""
        if not self._may_remove:
            return
        asleep = sum(node.state is NodeState.SUSPENDED for node in nodes) - sum(
            node.node_id in ordered and node.state is NodeState.SUSPENDED for node in nodes
        )
        warm = self._config.warm.get(kind.name, 0)
        leaving = [
            node
            for node in nodes
            if verdicts[node.node_id].action in _SHRINKING
            and not node.busy
            and node.node_id not in ordered
        ]
        for node in sorted(leaving, key=lambda node: (-node.since_ms, node.node_id)):
            verdict = verdicts[node.node_id]
            action = verdict.action
            if node.state is NodeState.RUNNING and spare <= 0:
                continue
            if action is NodeAction.SUSPEND and not kind.can_suspend:
                if not self._may_leave(node, kind):
                    continue
                action = NodeAction.TERMINATE
            keeps_warm = kind.can_suspend and (
                asleep < warm if node.state is NodeState.RUNNING else asleep <= warm
            )
            if action is NodeAction.TERMINATE and keeps_warm:
                if node.state is NodeState.SUSPENDED:
                    continue
                action = NodeAction.SUSPEND
            if not self._may_disrupt(nodes):
                break
            spare -= node.state is NodeState.RUNNING
            asleep += (action is NodeAction.SUSPEND) - (node.state is NodeState.SUSPENDED)
            self._orders.append(NodeOrder(action, kind.name, verdict.reason, node.node_id))

    def _may_leave(self, node: FleetNode, kind: MachineType) -> bool:
        """Say whether another machine will back the node in time for its booking (P25)."""
        gap = self._gaps.get(node.node_id)
        lead_ms = self._targets[kind.name].booked.lead_ms
        return (
            kind.can_leave
            and gap is not None
            and node.since_ms >= kind.times.idle_terminate_after_ms
            and gap > 2 * lead_ms
        )

    def _may_disrupt(self, nodes: Sequence[FleetNode]) -> bool:
        """Take one disruption out of the budgets and the bucket, if there is one left."""
        left = allowance(
            self._config.budgets, reason=IDLE, fleet=sum(node.exists for node in nodes),
            disrupted=self._disrupted, now_ms=self._now_ms,
        )  # fmt: skip
        if left <= 0 or self.removals.available(self._now_ms) <= 0:
            return False
        self.removals = self.removals.taken(1, self._now_ms)
        self._disrupted[IDLE] += 1
        return True
