"""How many machines of a type the calendar asks for between now and the lead.

Reads the forecast of the slot table: which node is booked from when to when. The lead depends on
how many machines must be launched, and how many must be launched on what falls within the lead,
so the two are found together. Which machine backs which node is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tenure_core.autoscaling.lead_times import boot_lead_ms
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Interval, Millis


@dataclass(frozen=True, slots=True)
class NodeBooking:
    """One node booked for one span; the slot table names the node, backed by a machine or not.

    `amounts` is what of it is booked, None for all of it.
    """

    node_id: str
    span: Interval
    amounts: ResourceVector | None = None


@dataclass(frozen=True, slots=True)
class BookedDemand:
    """The most nodes booked at once within the lead, the lead, and how many lack a machine."""

    peak: int
    lead_ms: Millis
    unbacked: int = 0


def peak_nodes(bookings: Iterable[NodeBooking], window: Interval) -> int:
    """Return the most distinct nodes booked at one instant of `window`. O(n log n)."""
    spans: dict[str, list[Interval]] = {}
    for booking in bookings:
        inside = booking.span.intersection(window)
        if inside is not None:
            spans.setdefault(booking.node_id, []).append(inside)
    changes: list[tuple[Millis, int]] = []
    for of_node in spans.values():
        for span in _joined(of_node):
            changes += ((span.start, 1), (span.end, -1))
    present = peak = 0
    for _, step in sorted(changes):
        present += step
        peak = max(peak, present)
    return peak


def _joined(spans: list[Interval]) -> list[Interval]:
    """Join a node's spans that touch or overlap, so that it is counted once at any instant."""
    joined: list[Interval] = []
    for span in sorted(spans):
        if joined and span.start <= joined[-1].end:
            last = joined.pop()
            span = Interval(last.start, max(last.end, span.end))
        joined.append(span)
    return joined


def booked_demand(
    bookings: Sequence[NodeBooking],
    kind: MachineType,
    *,
    ready_nodes: frozenset[str],
    now_ms: Millis,
    backlog_ms: Millis = 0,
) -> BookedDemand:
    """Return the booked demand for `kind` over now ... now + lead.

    `ready_nodes` have a machine that runs or starts; `backlog_ms` is how long the provider is busy
    with launches asked for before. Launched in the order of their starts, the j-th of the other
    nodes is ready after lead(j), so all up to the last j that starts within its lead(j) must be
    launched now. The lead is longer by `kind.replace_ms`, so that what fails can be replaced
    within it. O(n log n).
    """
    starts: dict[str, Millis] = {}
    for booking in bookings:
        if booking.node_id in ready_nodes or booking.span.end <= now_ms:
            continue
        at = max(booking.span.start, now_ms)
        starts[booking.node_id] = min(at, starts.get(booking.node_id, at))
    launches = 0
    for place, start in enumerate(sorted(starts.values()), start=1):
        if start <= now_ms + backlog_ms + boot_lead_ms(kind, place) + kind.replace_ms:
            launches = place
    lead = backlog_ms + boot_lead_ms(kind, max(1, launches)) + kind.replace_ms
    peak = peak_nodes(bookings, Interval(now_ms, now_ms + lead + 1))
    return BookedDemand(peak, lead, launches)


def next_booking_in_ms(
    bookings: Iterable[NodeBooking], *, now_ms: Millis, horizon_ms: Millis
) -> dict[str, Millis]:
    """Return the time to each node's next booking within the horizon; zero while one is active."""
    nearest: dict[str, Millis] = {}
    for booking in bookings:
        if booking.span.end <= now_ms or booking.span.start - now_ms > horizon_ms:
            continue
        gap = max(0, booking.span.start - now_ms)
        nearest[booking.node_id] = min(gap, nearest.get(booking.node_id, gap))
    return nearest


@dataclass(frozen=True, slots=True)
class Later:
    """What is booked on a node ahead: from when (as time from now), and the most at one instant."""

    in_ms: Millis
    amounts: ResourceVector | None

    def leaves(self, capacity: ResourceVector) -> ResourceVector:
        """Return what is left of a node with `capacity` while the most is booked."""
        if self.amounts is None:
            return ResourceVector()
        return ResourceVector({k: max(0, n - self.amounts[k]) for k, n in capacity.items()})


def booked_later(bookings: Iterable[NodeBooking], *, now_ms: Millis) -> dict[str, Later]:
    """Return what is booked on each node from an instant after `now_ms` on. O(n log n)."""
    ahead: dict[str, list[NodeBooking]] = {}
    for booking in bookings:
        if booking.span.start > now_ms:
            ahead.setdefault(booking.node_id, []).append(booking)
    return {
        node: Later(min(row.span.start for row in rows) - now_ms, _most(rows))
        for node, rows in ahead.items()
    }


def _most(rows: list[NodeBooking]) -> ResourceVector | None:
    """Return, kind by kind, the most that is booked at one instant; None for the whole node."""
    if len(rows) == 1:
        return rows[0].amounts
    changes: list[tuple[Millis, int, ResourceVector]] = []
    for row in rows:
        if row.amounts is None:
            return None
        changes += ((row.span.start, 1, row.amounts), (row.span.end, -1, row.amounts))
    present: dict[str, int] = {}
    most: dict[str, int] = {}
    for _, sign, amounts in sorted(changes, key=lambda change: change[:2]):
        for kind, amount in amounts.items():
            present[kind] = present.get(kind, 0) + sign * amount
            most[kind] = max(most.get(kind, 0), present[kind])
    return ResourceVector(most)


def earliest_start_ms(kind: MachineType, machines: int, *, ready: int, now_ms: Millis) -> Millis:
    """Return the earliest start that `machines` of a type can be ready for, for admission.

    `ready` of them run already; an earlier start deserves a counter-offer.
    """
    return now_ms + boot_lead_ms(kind, max(0, machines - ready))
