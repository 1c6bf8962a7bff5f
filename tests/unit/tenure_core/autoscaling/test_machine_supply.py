"""What a fleet buys, how fast, from whom, and what it does about differences with the provider."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tenure_core.autoscaling.disruption import DisruptionBudget, TokenBucket, allowance
from tenure_core.autoscaling.future_node import NodeTimes
from tenure_core.autoscaling.lead_times import (
    Measured,
    late_probability,
    lateness_ms,
    launch_backlog_ms,
    measured_times,
    percentile_ms,
    starts_possible,
)
from tenure_core.autoscaling.machine_types import DEFAULT_TIMES, Expander, MachineType, choices
from tenure_core.autoscaling.open_machines import FreeMachine
from tenure_core.autoscaling.queue_packing import WaitingLease, pack
from tenure_core.errors import Invalid
from tenure_core.resources import ResourceVector
from tenure_core.timebase import DAY_MS, HOUR_MS, MINUTE_MS

CPU = 1000


def cpu(amount: int, memory: int = 0) -> ResourceVector:
    """Return so many whole processors, and bytes of memory."""
    return ResourceVector({"cpu": amount * CPU, "memory": memory})


SMALL = MachineType("small", cpu(4, 16), price_micros=100, priority=1)
LARGE = MachineType("large", cpu(16, 64), price_micros=350, priority=2)
SPOT = MachineType("spot", cpu(4, 16), price_micros=30, spot=True)


def best(expander: Expander, shape: ResourceVector, count: int, **more: bool) -> list[str]:
    """Return the names of the fitting types, best first."""
    found = choices([SMALL, LARGE, SPOT], shape, count=count, expander=expander, now_ms=0, **more)
    return [kind.name for kind in found]


def test_the_expander_decides_among_types_that_fit() -> None:
    """Cheapest for the whole count, least waste, fewest nodes, or the pool's priority."""
    assert best(Expander.CHEAPEST, cpu(4), 1) == ["spot", "small", "large"]
    assert best(Expander.CHEAPEST, cpu(3), 4, interruptible=False) == ["large", "small"]
    assert best(Expander.LEAST_WASTE, cpu(16), 1) == ["large"]
    assert best(Expander.FEWEST_NODES, cpu(4), 4)[0] == "large"
    assert best(Expander.PRIORITY, cpu(1), 1) == ["large", "small", "spot"]


def test_spot_is_never_chosen_for_work_that_must_not_be_interrupted() -> None:
    """An interruption notice is minutes; such a lease has none to spare."""
    assert "spot" not in best(Expander.CHEAPEST, cpu(1), 1, interruptible=False)


def packed(
    waiting: list[WaitingLease], free: list[FreeMachine] | None = None, *, room: int = 10,
    types: tuple[MachineType, ...] = (SMALL, LARGE),
) -> tuple[dict[str, int], dict[str, int], dict[str, str]]:  # fmt: skip
    """Pack with the same room for every type and all together."""
    found = pack(
        waiting, free or [], types, room={kind.name: room for kind in types}, room_total=room,
        expander=Expander.CHEAPEST, now_ms=0,
    )  # fmt: skip
    return dict(found.opened), dict(found.machines), dict(found.unserved)


def test_free_capacity_is_used_before_anything_is_bought() -> None:
    """Machines in use first, then idle ones, then purchases."""
    free = [FreeMachine("small", cpu(1), in_use=True), FreeMachine("small", cpu(4, 16))]
    waiting = [WaitingLease(str(k), 1, cpu(1)) for k in range(6)]

    assert packed(waiting, free) == ({"small": 1}, {"small": 1}, {})


def test_a_gang_on_distinct_machines_takes_one_each() -> None:
    """Four ranks that must not share take four machines, though one would hold them."""
    lease = WaitingLease("gang", 4, cpu(1), distinct=True)

    assert packed([lease])[1] == {"small": 4}
    assert packed([replace(lease, distinct=False)])[1] == {"small": 1}


def test_who_goes_without_is_told_why() -> None:
    """A shape that no type holds is another matter than a cap that is reached."""
    waiting = [
        WaitingLease("huge", 1, cpu(99)), WaitingLease("gpu", 1, ResourceVector({"gpu": 1000})),
        WaitingLease("gang", 99, cpu(16)), WaitingLease("one", 1, cpu(16)),
    ]  # fmt: skip

    assert packed(waiting)[1:] == (
        {"large": 1}, {"huge": "NO_TYPE_FITS", "gpu": "NO_TYPE_FITS", "gang": "AT_LIMIT"},
    )  # fmt: skip


def test_a_purchase_for_one_lease_gives_another_a_second_chance() -> None:
    """What found no room is tried again once a machine was bought that has some left."""
    waiting = [
        WaitingLease("before", 17, cpu(1)), WaitingLease("buys", 1, cpu(5)),
        WaitingLease("after", 17, cpu(1)),
    ]  # fmt: skip
    found = pack(
        waiting, [], [SMALL, LARGE], room={"small": 2, "large": 1}, room_total=3,
        expander=Expander.CHEAPEST, now_ms=0,
    )  # fmt: skip

    assert dict(found.unserved) == {"before": "AT_LIMIT"}
    assert dict(found.machines) == {"large": 1, "small": 2}


leases = st.lists(
    st.builds(
        WaitingLease, st.uuids().map(str), st.integers(1, 7),
        st.builds(cpu, st.integers(0, 20), st.integers(0, 70)), st.booleans(), st.booleans(),
    ),
    max_size=25,
)  # fmt: skip
machines = st.lists(
    st.builds(
        FreeMachine, st.sampled_from(["small", "large"]),
        st.builds(cpu, st.integers(0, 16), st.integers(0, 64)), st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(leases, machines, st.integers(0, 15))
def test_packing_respects_room_and_capacity(
    waiting: list[WaitingLease], free: list[FreeMachine], room: int
) -> None:
    """What is served fits: bought and free capacity together hold all of it, within the room."""
    opened, bought, unserved = packed(waiting, free, room=room, types=(SMALL, LARGE, SPOT))
    kinds = {kind.name: kind for kind in (SMALL, LARGE, SPOT)}
    idle = Counter(machine.type_name for machine in free if not machine.in_use)

    assert sum(bought.values()) <= room
    assert all(count <= idle[name] for name, count in opened.items())
    served = [lease for lease in waiting if lease.lease_id not in unserved]
    for name in ("cpu", "memory"):
        there = sum(machine.free[name] for machine in free)
        there += sum(kinds[kind].capacity[name] * count for kind, count in bought.items())
        assert sum(lease.shape[name] * lease.nodes for lease in served) <= there
    assert packed(waiting, free, room=room, types=(SMALL, LARGE, SPOT))[1] == bought


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200))
def test_p26_the_percentile_is_the_nearest_rank(durations: list[int]) -> None:
    """At least 95 % of all measurements do not exceed it, and it was measured."""
    found = percentile_ms(durations)

    assert found in durations
    assert sum(d <= found for d in durations) * 100 >= 95 * len(durations)
    assert sum(d < found for d in durations) * 100 < 95 * len(durations)


def test_p26_times_are_measured_once_there_are_enough() -> None:
    """A few boots prove nothing; twenty replace the configured time."""
    few, many = Measured(), Measured()
    for _ in range(19):
        few = few.after_success(5)
    for _ in range(20):
        many = many.after_success(7)
    times = measured_times(DEFAULT_TIMES, boot=many, resume=few, suspend=Measured())

    assert times == replace(DEFAULT_TIMES, boot_p95_ms=7)


def test_p26_the_chance_to_be_late_shrinks_with_each_start_that_fits() -> None:
    """2 % failed boots and the slow 5 %: one start 6.9 %, two starts 0.48 %."""
    measured = Measured(started=100, failed=2)
    boot = SMALL.times.boot_p95_ms

    assert late_probability(measured, 1) == Fraction(69, 1000)
    assert late_probability(measured, 2) == Fraction(69, 1000) ** 2
    assert late_probability(measured, 0) == 1
    assert [starts_possible(SMALL, lead) for lead in (boot - 1, boot, 3 * boot)] == [0, 1, 2]


def test_p26_lateness_is_that_of_the_last_machine() -> None:
    """A booking is complete with its last machine; what is missing is late by now."""
    assert lateness_ms(100, [90, 100], now_ms=500) == 0
    assert lateness_ms(100, [90, 130], now_ms=500) == 30
    assert lateness_ms(100, [90, None], now_ms=500) == 400


def test_p26_launches_asked_for_before_delay_the_next() -> None:
    """At six a minute three fresh orders keep the provider busy for thirty seconds."""
    kind = replace(SMALL, launches_per_minute=6)

    fresh = [(0, 0), (0, 10_000), (0, 20_000)]

    assert launch_backlog_ms(kind, fresh) == 30_000
    assert launch_backlog_ms(kind, [(25_000, wait) for _, wait in fresh]) == 5_000
    assert launch_backlog_ms(kind, [(60_000, 0)]) == launch_backlog_ms(kind, []) == 0


def test_node_times_refuse_negative_lengths() -> None:
    """All violations at once."""
    with pytest.raises(Invalid) as caught:
        NodeTimes(-1, -1, 0, 0, 0, 0, 0, start_deadline_factor=0)

    assert len(caught.value.violations) == 3


@given(
    st.integers(1, 600), st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 60)), min_size=1, max_size=40),
)  # fmt: skip
def test_p28_a_bucket_never_gives_more_than_burst_and_rate(
    per_minute: int, burst: int, asks: list[tuple[int, int]]
) -> None:
    """In any span the number given is at most the burst and what the rate refilled."""
    bucket, now_ms, given_out = TokenBucket(per_minute, burst), 0, 0
    for gap, wanted in asks:
        now_ms += gap
        count = min(wanted, bucket.available(now_ms))
        bucket = bucket.taken(count, now_ms)
        given_out += count
        assert given_out <= burst + now_ms * per_minute // MINUTE_MS


def test_p28_the_tightest_budget_of_a_reason_decides() -> None:
    """Budgets may speak of some reasons and of some hours only, over midnight too."""
    budgets = [
        DisruptionBudget(share_ppm=100_000),
        DisruptionBudget(
            count=0, reasons=frozenset({"drift"}), from_ms=22 * HOUR_MS, to_ms=HOUR_MS
        ),
    ]
    night, day = 23 * HOUR_MS, 12 * HOUR_MS

    def left(reason: str, now_ms: int, **disrupted: int) -> int:
        return allowance(budgets, reason=reason, fleet=50, disrupted=disrupted, now_ms=now_ms)

    assert left("idle", night) == 5
    assert left("idle", night, idle=2, drift=4) == 0
    assert left("drift", night) == left("drift", DAY_MS + HOUR_MS - 1) == 0
    assert left("drift", day) == 5
    assert DisruptionBudget(share_ppm=100_000).allowed(3) == 1
    pair = [DisruptionBudget(count=1), DisruptionBudget(count=9)]
    assert allowance(pair, reason="idle", fleet=50, disrupted={}, now_ms=day) == 1
