"""The machines behind the nodes of a simulated site: they boot or fail, work, idle, go and cost.

Time is handed in; which machines there should be is the autoscaler's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from tenure_core.autoscaling.fleet_values import FleetNode
from tenure_core.autoscaling.future_node import NodeState, StartKind
from tenure_core.autoscaling.lead_times import Measured
from tenure_core.planning.snapshot import NodeView
from tenure_core.resources import ResourceVector
from tenure_core.timebase import FOREVER, Millis
from tenure_sim.fleet_settings import SEEN_EVERY_MS


@dataclass(slots=True)
class SimMachine:
    """What is behind one node now; `life` tells its machines apart, `works` counts what runs."""

    node: NodeView
    type_name: str
    state: NodeState = NodeState.ABSENT
    life: int = 0
    since: Millis = 0
    launched: Millis = 0
    launch_wait_ms: Millis = 0
    works: int = 0

    @property
    def capacity(self) -> ResourceVector:
        """Return what a machine of the node has."""
        return self.node.capacity[0][1]


@dataclass(slots=True)
class MachineTime:
    """How the time of machines was spent, in machine-milliseconds, and how many there were."""

    booting: Millis = 0
    idle: Millis = 0
    busy: Millis = 0
    boots: int = 0
    failed: int = 0
    most: int = 0

    @property
    def wasted(self) -> Millis:
        """Return the time for which a machine was there and nothing ran on it."""
        return self.booting + self.idle

    @property
    def total(self) -> Millis:
        """Return the time that is paid for."""
        return self.booting + self.idle + self.busy


class SimMachines:
    """All machines of a site, at most one a node."""

    def __init__(self, nodes: Sequence[NodeView], boots: Iterator[Millis | None]) -> None:
        shapes: dict[ResourceVector, str] = {}
        self.types: dict[str, ResourceVector] = {}
        self.machines: dict[str, SimMachine] = {}
        for node in nodes:
            shape = node.capacity[0][1]
            name = shapes.setdefault(shape, f"type-{len(shapes) + 1}")
            self.types[name] = shape
            self.machines[node.id] = SimMachine(node, name)
        self.time = MachineTime()
        self.measured = {name: Measured() for name in self.types}
        self._boots = boots
        self._coming: list[tuple[Millis, str, int]] = []

    def start_all(self) -> None:
        """Have every machine run from the beginning."""
        for machine in self.machines.values():
            machine.state = NodeState.RUNNING
        self.time.most = len(self.machines)

    def next_ready(self) -> Millis:
        """Return when the next machine may come up, FOREVER when none is on its way."""
        return self._coming[0][0] if self._coming else FOREVER

    def order(self, node: str, now: Millis, launch_wait_ms: Millis) -> None:
        """Order a machine; it is launched when the provider has launched those before."""
        machine = self.machines[node]
        assert machine.state is NodeState.ABSENT, f"{node} has a machine"
        machine.state, machine.since = NodeState.STARTING, now
        machine.life += 1
        machine.launch_wait_ms, machine.launched = launch_wait_ms, now + launch_wait_ms
        self.time.boots += 1
        took = next(self._boots)
        if took is not None:
            seen = -(-(machine.launched + took) // SEEN_EVERY_MS) * SEEN_EVERY_MS
            heappush(self._coming, (seen, node, machine.life))
        there = sum(each.state is not NodeState.ABSENT for each in self.machines.values())
        self.time.most = max(self.time.most, there)

    def ready(self, now: Millis) -> list[str]:
        """Return the nodes whose machines come up at `now`."""
        up = []
        while self._coming and self._coming[0][0] <= now:
            _, node, life = heappop(self._coming)
            machine = self.machines[node]
            if machine.life != life or machine.state is not NodeState.STARTING:
                continue
            took = now - machine.launched
            self.time.booting += took
            measured = self.measured[machine.type_name]
            self.measured[machine.type_name] = measured.after_success(took)
            machine.state, machine.since = NodeState.RUNNING, now
            up.append(node)
        return up

    def remove(self, node: str, now: Millis) -> None:
        """End a machine at once; one that starts has failed."""
        machine = self.machines[node]
        assert not machine.works, f"{node} is in use"
        if machine.state is NodeState.STARTING:
            self.time.booting += max(0, now - machine.launched)
            self.time.failed += 1
            self.measured[machine.type_name] = self.measured[machine.type_name].after_failure()
        else:
            self.time.idle += now - machine.since
        machine.state = NodeState.ABSENT

    def begin(self, nodes: Sequence[str], now: Millis) -> None:
        """Note that one lease runs on these nodes from now on."""
        for node in Counter(nodes):
            machine = self.machines[node]
            if not machine.works:
                self.time.idle += now - machine.since
                machine.since = now
            machine.works += 1

    def end(self, nodes: Sequence[str], now: Millis) -> None:
        """Note that one lease does not run on these nodes any more."""
        for node in Counter(nodes):
            machine = self.machines[node]
            machine.works -= 1
            if not machine.works:
                self.time.busy += now - machine.since
                machine.since = now

    def close(self, now: Millis) -> None:
        """Count what is there at the end of the run."""
        for node, machine in self.machines.items():
            if machine.state is NodeState.RUNNING:
                self.end([node] * bool(machine.works), now)
                self.time.idle += now - machine.since
            elif machine.state is NodeState.STARTING:
                self.time.booting += max(0, now - machine.launched)
            machine.state = NodeState.ABSENT

    def seen(self, now: Millis, used: dict[str, ResourceVector]) -> list[FleetNode]:
        """Return what the autoscaler sees; `used` is what is taken of each node in use."""
        nodes = []
        for name, machine in self.machines.items():
            taken = used.get(name)
            running = machine.state is NodeState.RUNNING
            nodes.append(
                FleetNode(
                    name,
                    machine.type_name,
                    machine.state,
                    since_ms=0 if machine.works else now - machine.since,
                    busy=running and taken is not None,
                    starting=StartKind.BOOT if machine.state is NodeState.STARTING else None,
                    launch_wait_ms=machine.launch_wait_ms,
                    free=machine.capacity if taken is None else _left(machine.capacity, taken),
                )
            )
        return nodes


_NOTHING: Final = ResourceVector()


def _left(capacity: ResourceVector, taken: ResourceVector) -> ResourceVector:
    if taken is capacity or taken == capacity:
        return _NOTHING
    return ResourceVector({kind: max(0, n - taken[kind]) for kind, n in capacity.items()})
