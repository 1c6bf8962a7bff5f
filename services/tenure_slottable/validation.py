"""Requests to lists of violations: all of them, not the first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.type.v1 import interval_pb2, work_pb2
from tenure_core.errors import Invalid, Violation
from tenure_core.resources import AMOUNT_MAX, KINDS_MAX, is_kind
from tenure_runtime.rpc.wire import to_millis

GROUPS_MAX: Final = 10_000
OPERATIONS_MAX: Final = 10_000
NODES_MAX: Final = 1_000
SLOTS_MAX: Final = 10_000
ATTRIBUTES_MAX: Final = 64
TEXT_MAX: Final = 1_000

_SCOPE = re.compile(r"(pool|group)/[a-z0-9][a-z0-9-]{0,62}")
_POOL = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_NAMES = {kind: re.compile(f"{kind}/{_ID}") for kind in ("reservations", "nodes", "leases")}


class Violations:
    """Collects what is wrong with a request."""

    def __init__(self) -> None:
        self._found: list[Violation] = []

    def add(self, field: str, reason: str, description: str) -> None:
        """Note one thing that is wrong."""
        self._found.append(Violation(field, reason, description))

    def unless(self, holds: bool, field: str, reason: str, description: str) -> None:
        """Note one thing that is wrong unless `holds`."""
        if not holds:
            self.add(field, reason, description)

    def name(self, kind: str, value: str, field: str) -> None:
        """Check a resource name."""
        self.unless(
            _NAMES[kind].fullmatch(value) is not None,
            field,
            "NAME_INVALID",
            f"is {kind}/ID, where ID is 1 to 200 letters, digits, '.', '_' or '-'",
        )

    def pool(self, value: str, field: str = "pool") -> None:
        """Check the name of a pool."""
        self.unless(
            _POOL.fullmatch(value) is not None,
            field,
            "NAME_INVALID",
            "is 1 to 63 lower-case letters, digits and hyphens",
        )

    def claim(self, scope: str, epoch: int) -> None:
        """Check what a leader shows."""
        self.unless(
            _SCOPE.fullmatch(scope) is not None,
            "scope",
            "SCOPE_INVALID",
            "is pool/NAME or group/NAME",
        )
        self.unless(epoch > 0, "epoch", "OUT_OF_RANGE", "is an epoch that AcquireEpoch returned")

    def count(self, items: int, most: int, field: str, *, least: int = 0) -> None:
        """Check how many items there are."""
        self.unless(
            least <= items <= most, field, "COUNT_OUT_OF_RANGE", f"holds {least} to {most} items"
        )

    def amounts(self, amounts: Mapping[str, int], field: str, *, required: bool = True) -> None:
        """Check a vector of amounts."""
        if required and not any(amounts.values()):
            self.add(field, "REQUIRED", "names at least one kind with an amount above 0")
        self.unless(
            len(amounts) <= KINDS_MAX, field, "TOO_MANY", f"names at most {KINDS_MAX} kinds"
        )
        for kind, amount in amounts.items():
            self.unless(
                is_kind(kind), f"{field}[{kind[:64]!r}]", "KIND_INVALID", "is no kind of resource"
            )
            self.unless(
                0 <= amount <= AMOUNT_MAX,
                f"{field}[{kind[:64]!r}]",
                "OUT_OF_RANGE",
                f"lies in 0..{AMOUNT_MAX}",
            )

    def interval(self, interval: interval_pb2.Interval, field: str) -> None:
        """Check a span that is required."""
        if not interval.HasField("start_time"):
            self.add(f"{field}.start_time", "REQUIRED", "says when the span begins")
            return
        start = self.instant(interval.start_time, f"{field}.start_time")
        if interval.HasField("end_time"):
            end = self.instant(interval.end_time, f"{field}.end_time")
            self.unless(end > start, f"{field}.end_time", "SPAN_EMPTY", "lies after start_time")

    def instant(self, timestamp: Timestamp, field: str) -> int:
        """Check an instant and return it in milliseconds."""
        millis = to_millis(timestamp)
        self.unless(
            0 <= millis < 2**53 and 0 <= timestamp.nanos < 1_000_000_000,
            field,
            "OUT_OF_RANGE",
            "lies after 1970 and before the year 280000",
        )
        return millis

    def raise_if_any(self) -> None:
        """Raise Invalid with everything that was noted."""
        if self._found:
            raise Invalid(self._found)


def check_plan(request: spb.SubmitPlanRequest) -> None:
    """Raise Invalid with every violation of a plan."""
    found = Violations()
    found.claim(request.scope, request.epoch)
    found.unless(
        request.scope.startswith("pool/"), "scope", "SCOPE_INVALID", "is pool/NAME for a plan"
    )
    found.count(len(request.groups), GROUPS_MAX, "groups", least=1)
    seen: set[str] = set()
    for index, group in enumerate(request.groups):
        field = f"groups[{index}]"
        found.unless(
            bool(group.group_id) and group.group_id not in seen,
            f"{field}.group_id",
            "NOT_UNIQUE",
            "is not empty and unique in the plan",
        )
        seen.add(group.group_id)
        found.count(len(group.operations), OPERATIONS_MAX, f"{field}.operations", least=1)
        for number, operation in enumerate(group.operations):
            _check_operation(found, operation, f"{field}.operations[{number}]")
    found.raise_if_any()


def _check_operation(found: Violations, operation: rpb.Operation, field: str) -> None:
    kind = operation.WhichOneof("kind")
    if kind is None:
        found.add(field, "REQUIRED", "says what to do")
        return
    field = f"{field}.{kind}"
    if kind == "book":
        _check_reservation(found, operation.book.reservation, f"{field}.reservation")
        return
    named = getattr(operation, kind)
    found.name("reservations", named.reservation, f"{field}.reservation")
    if kind == "move":
        found.interval(operation.move.interval, f"{field}.interval")
    if kind == "resize":
        found.amounts(operation.resize.amounts, f"{field}.amounts", required=False)
    if kind == "rebind":
        found.name("nodes", operation.rebind.node, f"{field}.node")
        if operation.rebind.HasField("interval"):
            found.interval(operation.rebind.interval, f"{field}.interval")


def _check_reservation(found: Violations, row: rpb.Reservation, field: str) -> None:
    found.name("reservations", row.name, f"{field}.name")
    found.name("nodes", row.node, f"{field}.node")
    found.name("leases", row.lease, f"{field}.lease")
    found.interval(row.interval, f"{field}.interval")
    # What stands still may occupy nothing at all: of a lease that asked for processors only.
    occupies = row.kind != work_pb2.RESERVATION_KIND_RESIDENT
    found.amounts(row.amounts, f"{field}.amounts", required=occupies)
    known = set(work_pb2.ReservationKind.values()) - {0}
    found.unless(row.kind in known, f"{field}.kind", "REQUIRED", "is a known kind")
    found.unless(row.attempt >= 0, f"{field}.attempt", "OUT_OF_RANGE", "is not negative")
    found.unless(row.rank >= 0, f"{field}.rank", "OUT_OF_RANGE", "is not negative")


def check_capacity(request: spb.SetCapacityRequest) -> None:
    """Raise Invalid with every violation of nodes to set."""
    found = Violations()
    found.claim(request.scope, request.epoch)
    found.unless(
        request.scope.startswith("pool/") or bool(request.pool),
        "pool", "REQUIRED", "names the pool when the scope is a group's",
    )  # fmt: skip
    if request.pool:
        found.pool(request.pool)
    found.count(len(request.nodes), NODES_MAX, "nodes", least=1)
    for index, node in enumerate(request.nodes):
        field = f"nodes[{index}]"
        found.name("nodes", node.name, f"{field}.name")
        found.count(len(node.attributes), ATTRIBUTES_MAX, f"{field}.attributes")
        found.count(len(node.capacity), 1_000, f"{field}.capacity")
        last = -1
        for number, change in enumerate(node.capacity):
            found.amounts(change.amounts, f"{field}.capacity[{number}].amounts", required=False)
            at = f"{field}.capacity[{number}].start_time"
            instant = found.instant(change.start_time, at)
            found.unless(instant > last, at, "NOT_ASCENDING", "lies after the one before")
            last = instant
    found.raise_if_any()


def check_node_claim(scope: str, epoch: int, node: str) -> None:
    """Raise Invalid for a leader's call about one node."""
    found = Violations()
    found.claim(scope, epoch)
    found.name("nodes", node, "node")
    found.raise_if_any()


def check_demand(
    request: spb.FindEarliestStartRequest | spb.GetAvailabilityRequest,
) -> None:
    """Raise Invalid with every violation of a question about capacity."""
    found = Violations()
    found.pool(request.pool)
    found.amounts(request.demand.amounts, "demand.amounts")
    found.count(len(request.demand.node_selector), ATTRIBUTES_MAX, "demand.node_selector")
    if isinstance(request, spb.FindEarliestStartRequest):
        found.unless(
            1 <= request.demand.node_count <= SLOTS_MAX,
            "demand.node_count",
            "OUT_OF_RANGE",
            f"lies in 1..{SLOTS_MAX}",
        )
        found.unless(
            0 < request.duration.seconds * 1_000 + request.duration.nanos // 1_000_000 < 2**45,
            "duration",
            "OUT_OF_RANGE",
            "is longer than nothing and shorter than 1000 years",
        )
    elif request.HasField("interval"):
        found.interval(request.interval, "interval")
        found.unless(
            request.interval.HasField("end_time"),
            "interval.end_time",
            "REQUIRED",
            "says when the span ends",
        )
    found.raise_if_any()


def check_span(interval: interval_pb2.Interval) -> None:
    """Raise Invalid with every violation of a span that narrows a list."""
    found = Violations()
    found.interval(interval, "interval")
    found.raise_if_any()


def check_window(window: rpb.MaintenanceWindow) -> None:
    """Raise Invalid with every violation of a maintenance window."""
    found = Violations()
    found.pool(window.pool, "maintenance_window.pool")
    found.count(len(window.nodes), SLOTS_MAX, "maintenance_window.nodes", least=1)
    for index, node in enumerate(window.nodes):
        found.name("nodes", node, f"maintenance_window.nodes[{index}]")
    found.interval(window.interval, "maintenance_window.interval")
    found.unless(
        window.interval.HasField("end_time"),
        "maintenance_window.interval.end_time",
        "REQUIRED",
        "says when the window ends",
    )
    found.unless(
        len(window.message) <= TEXT_MAX,
        "maintenance_window.message",
        "TOO_LONG",
        f"has at most {TEXT_MAX} characters",
    )
    found.raise_if_any()


def check_scope(scope: str) -> None:
    """Raise Invalid unless `scope` is one."""
    found = Violations()
    found.claim(scope, 1)
    found.raise_if_any()


def check_pools(pools: Iterable[str]) -> None:
    """Raise Invalid unless each names a pool."""
    found = Violations()
    for pool in pools:
        found.pool(pool)
    found.raise_if_any()
