from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from tenure_core.admission.fair_share import (
    Factors,
    FairShareTerms,
    Mean,
    factor,
    normalized,
    ranks,
    standing,
)

D = Decimal
TERMS = FairShareTerms(
    lookback=D(1), capacity={"cpu": D(1), "gpu": D(1)}, kind_weights={"cpu": D(1), "gpu": D(1)}
)
DAY = D(86_400)


def test_touching_a_little_of_another_kind_never_makes_a_user_look_lighter() -> None:
    plain, touched = {"cpu": DAY}, {"cpu": DAY, "gpu": D(1)}
    ancestor = replace(TERMS, mean=Mean.OF_TOUCHED_KINDS)

    assert normalized(touched, TERMS) > normalized(plain, TERMS) == D("0.5")
    assert normalized(touched, ancestor) < normalized(plain, ancestor)


def test_very_heavy_users_stay_in_order() -> None:
    assert factor(D(1000), D(1)) > factor(D(2000), D(1)) > 0
    assert factor(D(1000), D(1), D(10)) == factor(D(2000), D(1), D(10))


def test_a_weight_of_zero_entitles_to_nothing_and_fails_nobody() -> None:
    assert standing({0: {"cpu": DAY}}, 0, D(0), TERMS).factor == 0


def test_usage_halves_with_each_half_life_and_not_into_the_future() -> None:
    terms = replace(TERMS, half_life=D(7))

    assert standing({0: {"cpu": D(8)}}, 14, None, terms).decayed == {"cpu": D(2)}
    assert standing({20: {"cpu": D(8)}}, 14, None, terms).decayed == {"cpu": D(8)}


def test_kinds_weigh_by_family_unless_the_pool_says_otherwise() -> None:
    terms = FairShareTerms(kind_weights={"cuda.shares": D(3)})

    weights = [terms.kind_weight(k) for k in ("cpu", "mem", "cuda.device", "cuda.shares", "tpu")]
    assert weights == [D(1), D("0.001"), D(10), D(3), D(1)]


def test_equals_share_a_rank_and_the_next_one_is_counted_on() -> None:
    half = Factors(owner=D("0.5"))

    assert ranks({"b": half, "a": half, "new": Factors(), "z": Factors(owner=D(0))}) == [
        (1, "new"),
        (2, "a"),
        (2, "b"),
        (4, "z"),
    ]
