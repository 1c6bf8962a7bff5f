"""What to do with one node that may be booked: keep, suspend, terminate, resume, boot, replace.

The rule of the autoscaler specification, section 3.4: first match wins, every limit is inclusive
as written there. Which node serves which booking, and how many there should be, is decided in
`fleet`; this rule never lets a node go that a booking could miss (P25).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import Millis


class NodeState(StrEnum):
    """Where a node of a fleet stands; ABSENT is booked capacity without a machine."""

    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    STARTING = "STARTING"
    ABSENT = "ABSENT"


class StartKind(StrEnum):
    """How a starting node starts."""

    BOOT = "BOOT"
    RESUME = "RESUME"


class NodeAction(StrEnum):
    """What the rule asks for."""

    KEEP = "KEEP"
    SUSPEND = "SUSPEND"
    TERMINATE = "TERMINATE"
    KEEP_SUSPENDED = "KEEP_SUSPENDED"
    RESUME = "RESUME"
    WAIT = "WAIT"
    REPLACE = "REPLACE"
    BOOT = "BOOT"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """Measured 95th percentiles of one machine type and the waits of its pool, in milliseconds."""

    boot_p95_ms: Millis
    resume_p95_ms: Millis
    suspend_p95_ms: Millis
    guard_ms: Millis
    idle_suspend_after_ms: Millis
    idle_terminate_after_ms: Millis
    suspended_terminate_after_ms: Millis
    start_deadline_factor: int = 2

    def __post_init__(self) -> None:
        found = [
            Violation(name, "OUT_OF_RANGE", "zero or more")
            for name in self.__slots__
            if getattr(self, name) < 0
        ]
        if self.start_deadline_factor < 1:
            found.append(Violation("start_deadline_factor", "OUT_OF_RANGE", "at least one"))
        if found:
            raise Invalid(found, "INVALID_NODE_TIMES")

    @property
    def warm_ms(self) -> Millis:
        """Return the lead of a resume: its p95 and the guard."""
        return self.resume_p95_ms + self.guard_ms

    @property
    def cold_ms(self) -> Millis:
        """Return the lead of a boot: its p95 and the guard."""
        return self.boot_p95_ms + self.guard_ms

    @property
    def trip_ms(self) -> Millis:
        """Return how long it takes to suspend and to be back."""
        return self.suspend_p95_ms + self.resume_p95_ms + self.guard_ms


@dataclass(frozen=True, slots=True)
class BookedNode:
    """One node: its state, for how long (idle, suspended or starting), and its next booking.

    `next_booking_in_ms` is zero or less while a booking is active, None without one in sight.
    """

    state: NodeState
    since_ms: Millis = 0
    busy: bool = False
    starting: StartKind | None = None
    next_booking_in_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """The action, whether a booking will be late all the same, and the reason."""

    action: NodeAction
    reason: str
    late: bool = False


def decide_node(node: BookedNode, times: NodeTimes) -> NodeDecision:
    """Return the action for one node. O(1)."""
    match node.state:
        case NodeState.RUNNING:
            return _running(node, times)
        case NodeState.SUSPENDED:
            return _suspended(node, times)
        case NodeState.STARTING:
            return _starting(node, times)
        case NodeState.ABSENT:
            return _absent(node, times)


def _running(node: BookedNode, times: NodeTimes) -> NodeDecision:
    gap = node.next_booking_in_ms
    if node.busy:
        return NodeDecision(NodeAction.KEEP, "work_in_flight")
    if gap is not None and gap <= 0:
        return NodeDecision(NodeAction.KEEP, "booking_active")
    if gap is not None and gap <= times.trip_ms:
        return NodeDecision(NodeAction.KEEP, "booking_within_round_trip")
    if gap is not None:
        if node.since_ms >= times.idle_suspend_after_ms:
            return NodeDecision(NodeAction.SUSPEND, "idle_long_gap")
        return NodeDecision(NodeAction.KEEP, "idle_too_short")
    if node.since_ms >= times.idle_terminate_after_ms:
        return NodeDecision(NodeAction.TERMINATE, "idle_no_booking")
    if node.since_ms >= times.idle_suspend_after_ms:
        return NodeDecision(NodeAction.SUSPEND, "idle_no_booking")
    return NodeDecision(NodeAction.KEEP, "idle_too_short")


def _suspended(node: BookedNode, times: NodeTimes) -> NodeDecision:
    gap = node.next_booking_in_ms
    if gap is None:
        if node.since_ms >= times.suspended_terminate_after_ms:
            return NodeDecision(NodeAction.TERMINATE, "suspended_no_booking")
        return NodeDecision(NodeAction.KEEP_SUSPENDED, "no_booking")
    if gap <= times.warm_ms:
        return NodeDecision(NodeAction.RESUME, "lead_reached", late=gap < times.resume_p95_ms)
    return NodeDecision(NodeAction.KEEP_SUSPENDED, "lead_not_reached")


def _starting(node: BookedNode, times: NodeTimes) -> NodeDecision:
    resumes = node.starting is StartKind.RESUME
    p95_ms = times.resume_p95_ms if resumes else times.boot_p95_ms
    if node.since_ms <= times.start_deadline_factor * p95_ms:
        return NodeDecision(NodeAction.WAIT, "starting")
    gap = node.next_booking_in_ms
    late = gap is not None and gap < times.boot_p95_ms
    return NodeDecision(NodeAction.REPLACE, "start_deadline", late=late)


def _absent(node: BookedNode, times: NodeTimes) -> NodeDecision:
    gap = node.next_booking_in_ms
    if gap is None:
        return NodeDecision(NodeAction.NONE, "no_booking")
    if gap <= times.cold_ms:
        return NodeDecision(NodeAction.BOOT, "lead_reached", late=gap < times.boot_p95_ms)
    return NodeDecision(NodeAction.NONE, "lead_not_reached")
