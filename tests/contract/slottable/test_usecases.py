"""What slottable promises, on memory and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest
from tests.contract.slottable.stores import (
    CLAIM,
    CPU1,
    CPU4,
    book,
    move_behind_its_back,
    node,
    row,
)

from tenure_core.errors import Invalid, NotFound, Stale, WrongState
from tenure_core.planning.snapshot import ReservationKind
from tenure_core.resources import ResourceVector
from tenure_core.slots.operations import (
    MoveRow,
    NodeState,
    RebindRow,
    ReleaseRow,
    ResizeRow,
    RowGroup,
)
from tenure_core.slots.query import Demand
from tenure_core.timebase import FOREVER, Interval
from tenure_slottable.ports import MaintenanceWindow, OverCommit, RowFilter
from tenure_slottable.repeats import PlanRepeat
from tenure_slottable.usecases import AvailabilityStep, LeaderClaim, SlotTableUseCases


async def test_what_is_held_adds_up_to_what_there_is(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node(), node("n2")], cordoned=False)
    rows = (row("a", far, far + 9, amounts=CPU1), row("b", far + 5, far + 9, on="n2"))
    await table.submit_plan(CLAIM, [book(*rows)], None)

    found = await table.occupancy("p", 10)
    nowhere = await table.occupancy("other", 10)

    assert (found.over_commits, found.nodes, found.reservations) == ((), 2, 2)
    assert (nowhere.over_commits, nowhere.nodes, nowhere.reservations) == ((), 0, 0)


@pytest.mark.parametrize("displaced", [False, True])
async def test_what_a_faulty_writer_held_too_much_is_found(
    table: SlotTableUseCases, far: int, *, displaced: bool
) -> None:
    steps = ((0, CPU4), (far + 10, CPU1), (far + 30, CPU4))
    await table.set_capacity(CLAIM, [replace(node(), capacity=steps), node("n2")], cordoned=False)
    rows = (row("a", far, far + 20, amounts=CPU1), row("b", far + 5, far + 20, on="n2"))
    await table.submit_plan(CLAIM, [book(*rows)], None)

    await move_behind_its_back(table, "b", "n1", displaced=displaced)
    found = await table.occupancy("p", 10)
    first = await table.occupancy("p", 1)

    over = (
        OverCommit("n1", "cpu", Interval(far + 5, far + 10), 5_000, 4_000),
        OverCommit("n1", "cpu", Interval(far + 10, far + 20), 5_000, 1_000),
    )
    assert found.over_commits == (() if displaced else over)
    assert first.over_commits == (() if displaced else over[:1])


@pytest.fixture
def far(table: SlotTableUseCases) -> int:
    """An instant so far ahead that no test reaches it."""
    return 4_000_000_000_000


async def rows_of(table: SlotTableUseCases) -> dict[str, object]:
    return {stored.row.id: stored.row for stored in (await table.rows(RowFilter("p"))).rows}


async def test_a_group_takes_effect_whole_or_not_at_all(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    fits = row("a.1", far, far + 10)
    exceeds = row("b.2", far + 5, far + 15, lease="l2")
    also = row("b.1", far + 20, far + 30, lease="l2")

    result = await table.submit_plan(CLAIM, [book(fits, group="a"), book(also, exceeds)], None)

    assert [(v.group, v.error.reason if v.error else "") for v in result.verdicts] == [
        ("a", ""),
        ("g", "CAPACITY_EXCEEDED"),
    ]
    assert await rows_of(table) == {"a.1": fits}


async def test_touching_reservations_share_a_node(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)

    result = await table.submit_plan(
        CLAIM,
        [book(row("a", far, far + 10), group="1"), book(row("b", far + 10, far + 20, lease="l2"))],
        None,
    )

    assert [verdict.error for verdict in result.verdicts] == [None, None]


async def test_an_older_epoch_changes_nothing(table: SlotTableUseCases, far: int) -> None:
    first = await table.acquire_epoch("pool/p", "one")
    second = await table.acquire_epoch("pool/p", "two")
    assert second > first
    await table.set_capacity(LeaderClaim("pool/p", second), [node()], cordoned=False)

    with pytest.raises(Stale) as refused:
        await table.submit_plan(LeaderClaim("pool/p", first), [book(row("a", far, far + 1))], None)

    assert refused.value.reason == "STALE_EPOCH"
    assert await rows_of(table) == {}
    status = await table.status("p")
    assert (status.epoch.epoch, status.epoch.holder, status.nodes) == (second, "two", 1)


async def test_operations_compare_the_version_they_saw(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    await table.submit_plan(CLAIM, [book(row("a", far, far + 10))], None)
    moved = Interval(far + 100, far + 110)

    first = await table.submit_plan(CLAIM, [RowGroup("g", (MoveRow("a", 1, moved),))], None)
    again = await table.submit_plan(CLAIM, [RowGroup("g", (MoveRow("a", 1, moved),))], None)

    assert [v.error.reason if v.error else "" for v in (*first.verdicts, *again.verdicts)] == [
        "",
        "VERSION_MISMATCH",
    ]
    assert await rows_of(table) == {"a": replace(row("a", far + 100, far + 110), version=2)}


async def test_another_attempt_of_a_lease_is_refused_while_the_first_holds(
    table: SlotTableUseCases, far: int
) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    await table.submit_plan(CLAIM, [book(row("a", far, far + 10))], None)
    second = row("b", far + 20, far + 30, attempt=2)

    refused = await table.submit_plan(CLAIM, [book(second)], None)
    replaced = await table.submit_plan(
        CLAIM, [RowGroup("g", (ReleaseRow("a"), *book(second).operations))], None
    )

    assert refused.verdicts[0].error is not None
    assert refused.verdicts[0].error.reason == "ATTEMPT_MISMATCH"
    assert replaced.verdicts[0].error is None
    assert await rows_of(table) == {"b": second}


async def test_resize_rebind_and_release(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node(), node("n2")], cordoned=False)
    await table.submit_plan(CLAIM, [book(row("a", far, far + 10))], None)
    operations = (ResizeRow("a", 1, far + 4, CPU1), RebindRow("a", 2, "n2"))

    await table.submit_plan(CLAIM, [RowGroup("g", operations)], None)
    changed = await rows_of(table)
    await table.submit_plan(CLAIM, [RowGroup("g", (ReleaseRow("a", 3), ReleaseRow("gone")))], None)

    assert changed == {"a": replace(row("a", far, far + 4, on="n2", amounts=CPU1), version=3)}
    assert await rows_of(table) == {}


async def test_a_repeated_plan_gets_the_first_answer(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    repeat = PlanRepeat("scheduler", "r1", b"plan")
    groups = [book(row("a", far, far + 10)), book(row("b", far, far + 10, lease="l2"), group="h")]

    first = await table.submit_plan(CLAIM, groups, repeat)
    second = await table.submit_plan(CLAIM, groups, repeat)

    def shown(result: object) -> list[tuple[object, ...]]:
        return [(v.group, v.error and v.error.reason, v.rows) for v in result.verdicts]  # type: ignore[attr-defined]

    assert shown(second) == shown(first)
    assert (second.revision, second.at) == (first.revision, first.at)
    with pytest.raises(Invalid) as reused:
        await table.submit_plan(CLAIM, groups, PlanRepeat("scheduler", "r1", b"other"))
    assert reused.value.reason == "REQUEST_ID_REUSED"


async def test_capacity_that_shrinks_displaces_what_no_longer_fits(
    table: SlotTableUseCases, far: int
) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    early = row("a", far, far + 10, amounts=CPU1)
    late = row("b", far + 5, far + 15, lease="l2", amounts=ResourceVector({"cpu": 3_000}))
    await table.submit_plan(CLAIM, [book(early), book(late, group="h")], None)

    result = await table.set_capacity(CLAIM, [node(amounts=CPU1)], cordoned=False)
    booked = await table.submit_plan(
        CLAIM, [book(row("c", far + 50, far + 60, lease="l3", amounts=CPU1))], None
    )

    displaced = replace(late, displaced=True, version=2)
    assert result.displaced == (displaced,)
    assert await rows_of(table) == {"a": early, "b": displaced}
    assert booked.verdicts[0].error is not None
    assert booked.verdicts[0].error.reason == "NODE_CLOSED"


async def test_a_cordoned_node_takes_nothing_new_but_lets_its_leases_resume(
    table: SlotTableUseCases, far: int
) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    resident = row("r", far, FOREVER, amounts=CPU1, kind=ReservationKind.RESIDENT)
    await table.submit_plan(CLAIM, [book(resident)], None)
    await table.set_capacity(CLAIM, [node()], cordoned=True)

    foreign = await table.submit_plan(CLAIM, [book(row("x", far, far + 1, lease="l2"))], None)
    resumed = await table.submit_plan(
        CLAIM, [book(row("y", far, far + 1, amounts=ResourceVector({"cpu": 3_000})))], None
    )

    assert foreign.verdicts[0].error is not None
    assert foreign.verdicts[0].error.reason == "NODE_CLOSED"
    assert resumed.verdicts[0].error is None


async def test_setting_what_is_there_changes_nothing(table: SlotTableUseCases) -> None:
    first = await table.set_capacity(CLAIM, [node()], cordoned=False)
    again = await table.set_capacity(CLAIM, [node()], cordoned=False)

    assert again.nodes == first.nodes == (node(),)
    assert (await table.status("p")).revision == 1


async def test_a_node_belongs_to_one_pool(table: SlotTableUseCases) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)

    with pytest.raises(WrongState) as refused:
        await table.set_capacity(LeaderClaim("pool/q", 1), [node()], cordoned=False)

    assert refused.value.reason == "NODE_OF_OTHER_POOL"


async def test_a_booked_node_is_retired_only_by_force(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    await table.submit_plan(CLAIM, [book(row("a", far, far + 10))], None)

    with pytest.raises(WrongState) as refused:
        await table.retire_node(CLAIM, "n1", if_unbooked=True)
    forced = await table.retire_node(CLAIM, "n1", if_unbooked=False)
    kept = await table.set_capacity(CLAIM, [node()], cordoned=False)
    opened = await table.unretire_node(CLAIM, "n1")

    assert refused.value.reason == "NODE_BOOKED"
    assert [each.id for each in forced.displaced] == ["a"]
    assert kept.nodes[0].state is NodeState.RETIRED
    assert opened.nodes[0].state is NodeState.OPEN
    assert opened.nodes[0].capacity == node().capacity
    with pytest.raises(NotFound):
        await table.retire_node(CLAIM, "nowhere", if_unbooked=True)


async def test_earliest_start_is_after_what_is_booked(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node(), node("n2")], cordoned=False)
    await table.submit_plan(CLAIM, [book(row("a", far, far + 10))], None)

    both = await table.earliest_start("p", Demand(CPU4, 2), 5, far)
    one = await table.earliest_start("p", Demand(CPU4, 1), 5, far)
    never = await table.earliest_start("p", Demand(CPU4, 3), 5, far)

    assert (both.start, both.nodes) == (far + 10, ("n1", "n2"))
    assert (one.start, one.nodes) == (far, ("n2",))
    assert never.start is None


async def test_availability_counts_slots_over_time(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node(), node("n2", CPU1)], cordoned=False)
    await table.submit_plan(CLAIM, [book(row("a", far + 10, far + 20, amounts=CPU1))], None)

    found = await table.availability("p", Demand(CPU1, 1), Interval(far, far + 30), 0)

    assert found.steps == (
        AvailabilityStep(Interval(far, far + 10), 5),
        AvailabilityStep(Interval(far + 10, far + 20), 4),
        AvailabilityStep(Interval(far + 20, far + 30), 5),
    )


async def test_maintenance_displaces_what_is_in_its_way(table: SlotTableUseCases, far: int) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    await table.submit_plan(
        CLAIM, [book(row("a", far, far + 10), row("b", far + 10, far + 20))], None
    )
    window = MaintenanceWindow("w", "p", ("n1",), Interval(far + 10, far + 30), "new disks")

    preview = await table.create_window(window, None, validate_only=True)
    displaced = await table.create_window(window, None, validate_only=False)
    during = await table.availability("p", Demand(CPU4, 1), Interval(far + 20, far + 40), 0)
    listed = await table.windows("p", "", 10)
    await table.delete_window("w")

    assert [each.id for each in preview] == ["b"]
    assert [each.id for each in displaced] == ["b"]
    assert listed == (window,)
    assert set(await rows_of(table)) == {"a", "b"}
    # A node with a displaced reservation is closed, so nothing is free there at all.
    assert [step.slots for step in during.steps] == [0]
    with pytest.raises(NotFound):
        await table.delete_window("w")


async def test_a_watch_misses_nothing_and_repeats_nothing(
    table: SlotTableUseCases, far: int
) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)
    token = (await table.rows(RowFilter("p"))).token
    for number in range(20):
        span = (far + number, far + number + 1)
        await table.submit_plan(CLAIM, [book(row(f"a{number}", *span))], None)
    await table.submit_plan(CLAIM, [RowGroup("g", (ReleaseRow("a0"),))], None)

    async def follow(after: str, count: int) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        async with asyncio.timeout(10), aclosing(table.watch("p", after)) as changes:  # type: ignore[type-var]
            async for change in changes:
                if change.row or change.released:
                    seen.append(
                        (change.row.row.id if change.row else change.released, change.token)
                    )
                if len(seen) == count:
                    return seen
        raise AssertionError("the watch ended")

    first = await follow(token, 7)
    rest = await follow(first[-1][1], 14)

    names = [f"a{number}" for number in range(20)] + ["a0"]
    assert [name for name, _ in first + rest] == names


async def test_a_lost_race_is_a_verdict_not_an_overcommit(
    table: SlotTableUseCases, far: int
) -> None:
    await table.set_capacity(CLAIM, [node()], cordoned=False)

    async def one(number: int) -> bool:
        booking = row(f"a{number}", far, far + 10, lease=f"l{number}", amounts=CPU1)
        result = await table.submit_plan(CLAIM, [book(booking)], None)
        return result.verdicts[0].error is None

    won = await asyncio.gather(*(one(number) for number in range(12)))

    assert sum(won) == 4
    assert len(await rows_of(table)) == 4
