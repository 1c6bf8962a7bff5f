"""Which nodes the slot table is told of before there are machines for them. Pure.

The core says how many and from when (`tenure_core.autoscaling.offered_nodes`); here they get names
and are compared with what was told before, so that the slot table is written to only when a promise
is about to become too early. A node is offered only while no agent of its name is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tenure_autoscaler.fleet_view import (
    STARTING,
    FleetLook,
    fleet_config,
    fleet_nodes,
    machine_type,
)
from tenure_autoscaler.providers.port import Capabilities
from tenure_autoscaler.reckoning import PRESENT
from tenure_autoscaler.records import FleetBook, free_name
from tenure_core.autoscaling.lead_times import boot_lead_ms
from tenure_core.autoscaling.offered_nodes import NodeChange, offered_nodes
from tenure_core.timebase import SECOND_MS, Millis

SLACK_SHARE = 4
"""A promise is made a quarter of the lead later than could be kept, and so need not be renewed
at each look."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What to tell the slot table: nodes with when they can be had, and nodes to take back."""

    wanted: dict[str, Millis]
    withdrawn: tuple[str, ...]
    offered: dict[str, Millis]
    """All nodes offered once that is told."""


def offer(look: FleetLook, book: FleetBook, can: Capabilities) -> Offer:
    """Return what is to be told for a group that acts, from its book after the present orders."""
    group, now_ms = look.group, look.now_ms
    starting = {r.machine for r in book.records if r.state in STARTING}
    serving = {r.machine for r in book.records if r.live} - starting
    offered = {name: at for name, at in book.memory.offered.items() if name not in serving}
    looked = replace(look, reckoning=replace(look.reckoning, book=book))
    booked: dict[str, Millis] = {}
    for row in look.view.bookings or ():
        if row.span.end > now_ms:
            booked[row.node] = min(row.span.start, booked.get(row.node, row.span.start))
    kind = machine_type(group, book.memory.boots, can, looked)
    changes = offered_nodes(
        fleet_nodes(looked), [kind], fleet_config(looked), booked=booked, now_ms=now_ms
    )
    slack_ms = boot_lead_ms(kind, 1) // SLACK_SHARE + SECOND_MS
    wanted: dict[str, Millis] = {}
    withdrawn = []
    present = {name for name, sight in look.sights.items() if sight.state in PRESENT}
    named = set(book.taken) | offered.keys() | present
    for change in changes:
        name = change.node_id
        if change.change is NodeChange.WITHDRAW:
            withdrawn += [name] if name in offered else []
        elif change.change is NodeChange.ADD:
            found = free_name(group, can.names, named, look.sights.keys())
            if found is not None:
                named.add(found)
                wanted[found] = change.available_from_ms + slack_ms
        elif name not in present and offered.get(name, 0) < change.available_from_ms:
            since_ms = change.available_from_ms + slack_ms
            wanted[name] = min(since_ms, booked.get(name, since_ms))
    for name in starting & offered.keys() - booked.keys():
        if offered[name] <= now_ms:
            # Late: nobody shall count on it before it is there.
            wanted[name] = now_ms + slack_ms
    offered = {name: at for name, at in offered.items() if name not in withdrawn}
    return Offer(wanted, tuple(withdrawn), offered | wanted)


def nothing(book: FleetBook) -> Offer:
    """Return what is to be told for a group that does not act: everything is taken back."""
    live = {record.machine for record in book.records if record.live}
    return Offer({}, tuple(name for name in sorted(book.memory.offered) if name not in live), {})
