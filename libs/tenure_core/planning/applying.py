"""Carries out a plan's operations on a slot table, checking their preconditions.

A group takes effect as a whole or not at all. Epochs and charging are the caller's.
"""

from __future__ import annotations

from dataclasses import replace

from tenure_core.errors import Conflict, DomainError
from tenure_core.planning.plan import (
    Book,
    Displace,
    Move,
    Operation,
    OperationGroup,
    Rebind,
    Release,
    Resize,
)
from tenure_core.planning.snapshot import ReservationView
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import Interval


def apply_group(table: SlotTable, group: OperationGroup) -> None:
    """Apply all operations of the group, in order.

    Raises Conflict VERSION_MISMATCH or ATTEMPT_MISMATCH, Exhausted CAPACITY_EXCEEDED or NotFound,
    with the table as it was.
    """
    table.begin()
    try:
        for operation in group.operations:
            apply_operation(table, operation)
    except DomainError:
        table.undo()
        raise
    table.keep()


def apply_operation(table: SlotTable, operation: Operation) -> None:
    """Apply one operation; raises as `apply_group` does, with the table as it was."""
    if isinstance(operation, Book):
        table.add(operation.row())
        return
    row = table.get(operation.reservation)
    _compare(row, operation)
    version = row.version + 1
    match operation:
        case Release():
            table.remove(row.id)
        case Move(interval=interval):
            table.change(replace(row, interval=interval, version=version))
        case Resize(end=end):
            table.change(replace(row, interval=Interval(row.interval.start, end), version=version))
        case Rebind(node=node):
            table.change(replace(row, node=node, displaced=False, version=version))
        case Displace():
            table.change(replace(row, displaced=True, version=version))


def _compare(row: ReservationView, operation: Move | Resize | Release | Rebind | Displace) -> None:
    if row.version != operation.version:
        raise Conflict(
            "VERSION_MISMATCH",
            f"reservation {row.id} is at version {row.version}, not {operation.version}",
            reservation=row.id,
        )
    if (row.lease, row.attempt) != (operation.lease, operation.attempt):
        raise Conflict(
            "ATTEMPT_MISMATCH",
            f"reservation {row.id} belongs to attempt {row.attempt} of {row.lease or 'nobody'}",
            reservation=row.id,
        )
