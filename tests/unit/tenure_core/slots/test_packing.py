"""Packed amounts behave as the amounts they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tenure_core.resources import AMOUNT_MAX, ResourceVector
from tenure_core.slots.packing import Packing

KINDS = ["cpu", "gpu", "memory", "licences"]
VECTORS = st.dictionaries(st.sampled_from(KINDS), st.integers(0, AMOUNT_MAX)).map(ResourceVector)
SMALL = st.dictionaries(st.sampled_from(KINDS), st.integers(0, 40)).map(ResourceVector)


def packing() -> Packing:
    made = Packing()
    made.learn(KINDS)
    return made


@given(VECTORS)
def test_unpacking_gives_back_what_was_packed(vector):
    assert packing().unpack(packing().pack(vector)) == vector


@given(VECTORS, VECTORS)
def test_guard_bits_stay_exactly_when_everything_demanded_is_there(free, demand):
    made = packing()
    left = (made.pack(free) | made.guard) - made.pack(demand)
    assert (left & made.guard == made.guard) == demand.fits_in(free)
    if demand.fits_in(free):
        assert made.unpack(left) == free - demand


@given(SMALL, SMALL, st.integers(1, 30))
def test_times_counts_how_often_a_demand_fits(free, demand, most):
    made = packing()
    expected = min(most, demand.times_in(free))
    assert made.times(made.pack(free) | made.guard, made.pack(demand), most) == expected


@given(SMALL, SMALL)
def test_clamped_takes_what_there_is(free, demand):
    made = packing()
    taken = made.unpack(made.clamped(made.pack(free) | made.guard, made.pack(demand)))
    assert taken == ResourceVector({kind: min(free[kind], demand[kind]) for kind in KINDS})


def test_a_kind_never_learnt_cannot_be_packed():
    made = Packing()
    assert made.learn(["cpu"]) == made.guard
    assert made.learn(["cpu"]) == 0
    assert made.pack(ResourceVector({"gpu": 1})) is None
