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
from tenure_core.autoscaling.provider_errors import (
    BACKOFF,
    CLEAN,
    Backoff,
    ProviderErrorClass,
    after_failure,
    error_class,
)
from tenure_core.autoscaling.queue_packing import WaitingLease, pack
from tenure_core.autoscaling.reconciliation import (
    Difference,
    Finding,
    Grace,
    SeenMachine,
    WantedMachine,
    reconcile,
)
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

    assert launch_backlog_ms(kind, [0, 0, 0]) == 30_000
    assert launch_backlog_ms(kind, [25_000, 25_000, 25_000]) == 5_000
    assert launch_backlog_ms(kind, [60_000]) == launch_backlog_ms(kind, []) == 0


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


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("InstanceLimitExceeded", ProviderErrorClass.QUOTA),
        ("InsufficientInstanceCapacity", ProviderErrorClass.CAPACITY),
        ("RequestLimitExceeded", ProviderErrorClass.THROTTLE),
        ("UnauthorizedOperation", ProviderErrorClass.AUTH),
        ("InvalidParameterValue", ProviderErrorClass.BAD_REQUEST),
        ("connection reset", ProviderErrorClass.UNCLEAR),
        ("", ProviderErrorClass.UNCLEAR),
    ],
)
def test_p18_errors_fall_into_classes(code: str, expected: ProviderErrorClass) -> None:
    """What is not known may have been carried out, and is looked up."""
    assert error_class(code) is expected


@given(st.lists(st.sampled_from(ProviderErrorClass), min_size=1, max_size=50))
def test_p18_waits_grow_to_a_limit_and_never_end_in_a_loop(
    causes: list[ProviderErrorClass],
) -> None:
    """Each failure waits at least the class's first and at most its longest time."""
    backoff, now_ms = CLEAN, 0
    for cause in causes:
        backoff = after_failure(backoff, cause, now_ms=now_ms)
        wait = backoff.until_ms - now_ms
        assert BACKOFF[cause].first_ms <= wait <= BACKOFF[cause].longest_ms
        assert not backoff.open_at(backoff.until_ms - 1)
        now_ms = backoff.until_ms


def test_p18_a_quiet_time_forgives() -> None:
    """After hours without failure the next starts at the first wait again."""
    old = Backoff(9, 10, 10, ProviderErrorClass.QUOTA)
    policy = BACKOFF[ProviderErrorClass.QUOTA]
    later = 10 + policy.forgiven_after_ms + 1

    assert after_failure(old, ProviderErrorClass.QUOTA, now_ms=later).failures == 1


def differences(
    wanted: list[WantedMachine], seen: list[SeenMachine], now_ms: int = 0
) -> list[Finding]:
    """Reconcile as owner `me`."""
    return reconcile(wanted, seen, owner="me", now_ms=now_ms, grace=Grace())


def test_p17_an_unanswered_create_is_adopted_by_its_token() -> None:
    """The machine is found by the token that was stored before the provider was asked."""
    found = differences([WantedMachine("t", 0)], [SeenMachine("i", "me", "t")])

    assert found == [Finding(Difference.ADOPT, "i", "t")]


def test_p17_a_second_machine_of_one_token_is_a_duplicate() -> None:
    """Providers that ignore tokens make two; the recorded one stays."""
    seen = [SeenMachine("a", "me", "t"), SeenMachine("b", "me", "t")]

    assert differences([WantedMachine("t", 0, "b")], seen) == [
        Finding(Difference.DUPLICATE, "a", "t", overdue=True)
    ]


def test_orphans_and_losses_are_overdue_only_after_their_grace() -> None:
    """Listings lag in both directions."""
    wanted = [WantedMachine("gone", 0, "g"), WantedMachine("asked", 0)]
    seen = [SeenMachine("o", "me", "unknown", first_seen_ms=0)]

    def overdue(now_ms: int) -> dict[Difference, bool]:
        return {f.difference: f.overdue for f in differences(wanted, seen, now_ms)}

    kinds = (Difference.LOST, Difference.ORPHAN, Difference.UNANSWERED)
    assert overdue(0) == dict.fromkeys(kinds, False)
    assert overdue(HOUR_MS) == dict.fromkeys(kinds, True)


def test_p19_a_tombstone_lingers_and_is_gone() -> None:
    """Deletion is confirmed by the listing, not by the answer."""
    grave = WantedMachine("t", 0, "i", deleted_at_ms=0)

    assert differences([grave], [SeenMachine("i", "me", "t")])[0].difference is (
        Difference.LINGERING
    )
    assert differences([grave], []) == [Finding(Difference.GONE, "i", "t")]


@given(
    st.lists(
        st.builds(
            SeenMachine, st.integers(0, 9).map(str), st.sampled_from(["me", "you", ""]),
            st.sampled_from("abc"),
        ),
        unique_by=lambda machine: machine.machine_id,
    ),
    st.lists(st.builds(WantedMachine, st.sampled_from("abcd"), st.just(0)), max_size=3),
)  # fmt: skip
def test_p01_only_machines_with_our_mark_are_named_for_removal(
    seen: list[SeenMachine], wanted: list[WantedMachine]
) -> None:
    """Foreign machines are reported and nothing more, whatever token they carry."""
    owner = {machine.machine_id: machine.owner for machine in seen}
    for finding in differences(wanted, seen, HOUR_MS):
        if finding.machine_id:
            ours = owner[finding.machine_id] == "me"
            assert ours is (finding.difference is not Difference.FOREIGN)
