"""Two replicas over one database: both are correct, and neither serves an old state."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.slottable.stores import CLAIM, CPU1, CPU4, book, node, postgres_usecases, row

from tenure_core.slots.query import Demand
from tenure_slottable.ports import RowFilter

FAR = 4_000_000_000_000


@pytest.mark.postgres
async def test_two_replicas_never_book_the_same_capacity_twice(database_dsn: str) -> None:
    async with postgres_usecases(database_dsn) as one, postgres_usecases(database_dsn) as two:
        await one.set_capacity(CLAIM, [node(f"n{i}") for i in range(3)], cordoned=False)

        async def burst(usecases: object, name: str) -> int:
            won = 0
            for number in range(20):
                start = FAR + number % 4
                booking = row(
                    f"{name}{number}", start, start + 3, on=f"n{number % 3}",
                    lease=f"{name}{number}", amounts=CPU1,
                )  # fmt: skip
                result = await usecases.submit_plan(CLAIM, [book(booking)], None)  # type: ignore[attr-defined]
                won += result.verdicts[0].error is None
            return won

        counts = await asyncio.gather(burst(one, "a"), burst(two, "b"))
        rows = [stored.row for stored in (await two.rows(RowFilter("p", limit=100))).rows]

        assert len(rows) == sum(counts)
        for name in ("n0", "n1", "n2"):
            for instant in range(FAR, FAR + 8):
                held = [r for r in rows if r.node == name and r.interval.contains(instant)]
                assert len(held) <= 4
        assert (await one.status("p")).revision == (await two.status("p")).revision


@pytest.mark.postgres
async def test_a_replica_answers_from_what_the_other_committed(database_dsn: str) -> None:
    async with postgres_usecases(database_dsn) as one, postgres_usecases(database_dsn) as two:
        await one.set_capacity(CLAIM, [node()], cordoned=False)
        assert (await two.earliest_start("p", Demand(CPU4, 1), 5, FAR)).start == FAR
        await one.submit_plan(CLAIM, [book(row("a", FAR, FAR + 10))], None)
        assert (await two.earliest_start("p", Demand(CPU4, 1), 5, FAR)).start == FAR + 10
        shrunk = await two.set_capacity(CLAIM, [node(amounts=CPU1)], cordoned=False)
        assert [each.id for each in shrunk.displaced] == ["a"]
        assert (await one.earliest_start("p", Demand(CPU4, 1), 5, FAR)).start is None


@pytest.mark.postgres
async def test_the_table_survives_a_restart(database_dsn: str) -> None:
    booking = row("a", FAR, FAR + 10)
    async with postgres_usecases(database_dsn) as before:
        await before.set_capacity(CLAIM, [node()], cordoned=False)
        await before.submit_plan(CLAIM, [book(booking)], None)
    async with postgres_usecases(database_dsn) as after:
        listing = await after.rows(RowFilter("p"))
        refused = await after.submit_plan(CLAIM, [book(row("b", FAR, FAR + 1, lease="x"))], None)

    assert [stored.row for stored in listing.rows] == [booking]
    assert refused.verdicts[0].error is not None
