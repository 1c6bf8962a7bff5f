"""Maintenance that is over leaves the table, step by step; what is booked stays."""

from __future__ import annotations

import pytest
from tests.contract.slottable.stores import (
    CLAIM,
    CPU1,
    book,
    node,
    row,
)

from tenure_core.timebase import HOUR_MS, Interval
from tenure_runtime.clocks import SystemClock
from tenure_slottable import compacting
from tenure_slottable.compacting import Compacting
from tenure_slottable.ports import MaintenanceWindow, RowFilter
from tenure_slottable.usecases import SlotTableUseCases


async def names(table: SlotTableUseCases) -> list[str]:
    return [stored.row.id for stored in (await table.rows(RowFilter("p"))).rows]


async def test_only_maintenance_that_is_long_over_goes(
    table: SlotTableUseCases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacting, "ROWS_MAX", 2)
    now = SystemClock().now_ms()
    nodes = tuple(f"n{number}" for number in range(5))
    await table.set_capacity(CLAIM, [node(name) for name in nodes], cordoned=False)
    past = Interval(now - 3 * HOUR_MS, now - 2 * HOUR_MS)
    overran = row("overran", past.start - 2, past.start - 1, on="n0", lease="runs", amounts=CPU1)
    await table.submit_plan(CLAIM, [book(overran)], None)
    spans = {
        "old": past,
        "late": Interval(now - HOUR_MS, now - 1),
        "next": Interval(now, now + HOUR_MS),
    }
    for name, span in spans.items():
        window = MaintenanceWindow(name, "p", nodes, span)
        await table.create_window(window, None, validate_only=False)
    before = await names(table)
    revision = (await table.status("p")).revision

    assert await Compacting(table._store, 2 * HOUR_MS).run_once() == 1

    left = [name for name in before if not name.startswith("maintenance-old.")]
    assert len(before) == len(left) + len(nodes)
    assert await names(table) == left
    assert "overran" in left
    assert [each.id for each in await table.windows("p", "", 10)] == ["late", "next"]
    assert (await table.status("p")).revision == revision + 3, "in steps of two reservations"
    assert await Compacting(table._store, 2 * HOUR_MS).run_once() == 0
    found = await table.occupancy("p", 10)
    assert (found.over_commits, found.reservations) == ((), len(left))
