"""The search for a gang against looking at every instant, where many nodes change at once."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tenure_core.resources import ResourceVector
from tenure_core.slots.packing import Packing
from tenure_core.slots.profile import NodeProfile
from tenure_core.slots.search import Gang, earliest_start, slots_over

HORIZON = 30


def a_world(rng: random.Random) -> tuple[Packing, list[NodeProfile]]:
    """Return nodes whose free amounts change at whole instants below the horizon."""
    packing = Packing()
    packing.learn(("cpu", "memory"))
    profiles = []
    for _ in range(rng.randint(1, 8)):
        profile = NodeProfile(packing.guard)
        whole = ResourceVector({"cpu": rng.randint(1, 6), "memory": rng.randint(1, 6)})
        packed = packing.pack(whole)
        assert packed is not None
        profile.raise_from(0, None, packed)
        for _ in range(rng.randint(0, 8)):
            start = rng.randrange(HORIZON)
            end = start + rng.randint(1, 12)
            took = packing.pack(ResourceVector({"cpu": rng.randint(1, 3)}))
            assert took is not None
            if profile.fits(start, end, took, packing.guard):
                profile.shift(start, end, -took)
        profiles.append(profile)
    return packing, profiles


def naive_slots(profile: NodeProfile, gang: Gang, start: int) -> int:
    """Return how many slots fit, one more at a time."""
    slots = 0
    while slots < gang.per_node and profile.fits(
        start, start + gang.duration, gang.demand * (slots + 1), gang.guard
    ):
        slots += 1
    return slots


@given(st.randoms(use_true_random=False))
def test_the_first_instant_at_which_enough_slots_fit_is_found(rng: random.Random) -> None:
    packing, profiles = a_world(rng)
    demand = packing.pack(ResourceVector({"cpu": rng.randint(1, 2), "memory": rng.randint(0, 2)}))
    assert demand is not None
    count = rng.randint(2, 10)
    per_node = rng.choice((1, 2, count))
    fields = packing.fields_of(demand)
    gang = Gang(demand, fields, packing.guard, count, per_node, rng.randint(1, 8))
    not_before = rng.randrange(HORIZON)
    latest = rng.choice((HORIZON * 3, rng.randrange(not_before, HORIZON + 10)))

    answer = earliest_start(profiles, gang, not_before=not_before, latest=latest)
    found = None if answer is None else answer[0]

    expected = next(
        (
            start
            for start in range(not_before, min(latest, HORIZON * 3) + 1)
            if sum(naive_slots(profile, gang, start) for profile in profiles) >= count
        ),
        None,
    )
    assert found == expected
    if answer is not None and answer[1] is not None:
        assert list(answer[1]) == [naive_slots(profile, gang, answer[0]) for profile in profiles]


@given(st.randoms(use_true_random=False))
def test_slots_over_a_span_are_as_many_as_fit_throughout(rng: random.Random) -> None:
    packing, [profile, *_] = a_world(rng)
    demand = packing.pack(ResourceVector({"cpu": 1, "memory": rng.randint(0, 2)}))
    assert demand is not None
    gang = Gang(demand, packing.fields_of(demand), packing.guard, 9, rng.randint(1, 9), 5)
    start = rng.randrange(HORIZON)

    slots, limiting = slots_over(
        profile, demand, packing.guard, gang.fields, start, start + 5, gang.per_node
    )

    assert slots == naive_slots(profile, gang, start)
    if slots < gang.per_node:
        more = demand * (slots + 1)
        assert (profile.free[limiting] - more) & packing.guard != packing.guard
