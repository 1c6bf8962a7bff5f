"""What the autoscaler measures of the groups that it acts for, beside what every process does."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable
from typing import Final

from tenure_autoscaler.records import MachineRecord
from tenure_autoscaler.values import Group, MachineState
from tenure_core.timebase import Millis
from tenure_runtime.telemetry.metrics import LONG_MS, Counter, Gauge, Histogram

MACHINES: Final = Gauge("autoscaler_machines", "1", "Machines", ("group", "state"))
TARGET: Final = Gauge("autoscaler_target", "1", "Machines that are wanted", ("group",))
ACTED: Final = Counter("autoscaler_acts", "1", "Looks at a fleet, by outcome", ("group", "outcome"))
BOOT: Final = Histogram(
    "autoscaler_boot_duration", "Time from a machine's launch until it serves", ("group",), LONG_MS
)
LATENESS: Final = Histogram(
    "autoscaler_lateness", "How much longer than its group's boot time that took", ("group",),
    LONG_MS,
)  # fmt: skip


def looked(group: Group, changed: Iterable[MachineRecord], now_ms: Millis) -> None:
    """Record how long machines took that are found to serve at this look."""
    for record in changed:
        if record.state is MachineState.RUNNING and record.changed_ms == now_ms:
            took_ms = max(0, now_ms - record.ordered_ms - record.launch_wait_ms)
            BOOT.record(took_ms, group.group)
            LATENESS.record(max(0, took_ms - group.boot_ms), group.group)


def decided(group: str, records: Iterable[MachineRecord], target: int) -> None:
    """Set how a fleet is and how large it is to be."""
    counts = Tally(record.state for record in records)
    for state in MachineState:
        MACHINES.set(counts[state], group, state.value)
    TARGET.set(target, group)


def forget(group: str) -> None:
    """Show a group no more: another acts for it, or nobody."""
    TARGET.forget(group)
    for state in MachineState:
        MACHINES.forget(group, state.value)
