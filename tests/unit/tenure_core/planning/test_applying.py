"""A group of operations takes effect as a whole, and only on what the planner saw."""

from __future__ import annotations

import pytest
from tests.unit.tenure_core.planning.pool_in_time import node

from tenure_core.errors import Conflict, DomainError, Exhausted, NotFound
from tenure_core.planning.applying import apply_group
from tenure_core.planning.plan import (
    Book,
    Displace,
    Move,
    OperationGroup,
    Rebind,
    Release,
    Resize,
)
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.resources import ResourceVector
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import Interval

CORE = ResourceVector({"cpu": 1000})


def table() -> SlotTable:
    row = ReservationView("r", "l", 1, 0, "a", Interval(0, 10), CORE, ReservationKind.RUN)
    return SlotTable([node("a"), node("b")], [row])


def group(*operations) -> OperationGroup:
    return OperationGroup("g", "l", ("l",), operations)


def test_operations_build_on_one_another_and_count_versions():
    slots = table()
    apply_group(
        slots,
        group(
            Move("r", 1, "l", 1, Interval(5, 15)),
            Resize("r", 2, "l", 1, 20),
            Rebind("r", 3, "l", 1, "b"),
            Book("s", "l", 1, 1, "a", Interval(0, 30), CORE),
        ),
    )
    row = slots.get("r")
    assert (row.node, row.interval, row.version) == ("b", Interval(5, 20), 4)
    assert slots.get("s").version == 1
    apply_group(slots, group(Displace("r", 4, "l", 1), Release("s", 1, "l", 1)))
    assert slots.get("r").displaced
    assert "s" not in slots


@pytest.mark.parametrize(
    ("last", "error", "reason"),
    [
        (Release("r", 7, "l", 1), Conflict, "VERSION_MISMATCH"),
        (Release("r", 1, "l", 2), Conflict, "ATTEMPT_MISMATCH"),
        (Release("x", 1, "l", 1), NotFound, "RESERVATION_NOT_FOUND"),
        (Book("s", "m", 1, 0, "a", Interval(9, 12), CORE), Exhausted, "CAPACITY_EXCEEDED"),
        (Book("s", "m", 1, 0, "z", Interval(9, 12), CORE), NotFound, "NODE_NOT_FOUND"),
        (Book("r", "m", 1, 0, "b", Interval(9, 12), CORE), Conflict, "RESERVATION_EXISTS"),
    ],
)
def test_a_refused_operation_takes_the_whole_group_back(last, error, reason):
    slots = table()
    before = slots.reservations()
    with pytest.raises(error) as caught:
        apply_group(slots, group(Book("t", "l", 1, 1, "b", Interval(0, 5), CORE), last))
    assert isinstance(caught.value, DomainError)
    assert caught.value.reason == reason
    assert slots.reservations() == before
    slots.check()
