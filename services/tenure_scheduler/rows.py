"""Planned operations as the slot table takes them."""

from __future__ import annotations

from tenure_core.planning import plan as p
from tenure_core.slots import operations


def row_operation(operation: p.Operation) -> operations.RowOperation:
    """Return a planned operation as the slot table takes it."""
    match operation:
        case p.Book():
            return operations.BookRow(operation.row())
        case p.Move():
            return operations.MoveRow(operation.reservation, operation.version, operation.interval)
        case p.Resize():
            return operations.ResizeRow(operation.reservation, operation.version, operation.end)
        case p.Release():
            return operations.ReleaseRow(operation.reservation, operation.version)
        case p.Rebind():
            return operations.RebindRow(operation.reservation, operation.version, operation.node)
        case p.Displace():
            return operations.DisplaceRow(operation.reservation, operation.version)
