"""What leases cost by each policy, and what users say to it."""

from __future__ import annotations

import pytest

from tenure_core.policies.pricing import (
    Adaptive,
    Ask,
    Constant,
    Free,
    Maximum,
    Quote,
    Random,
    parse_pricing,
    quote,
    user_rate_of,
)


def ask(lease: str = "a", user: str = "ann", rate: float | None = None, surcharge: float = 0.0):
    return Ask(lease, user, 6.0, surcharge, rate)


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        (Free(), ask(rate=0.0), Quote(0.0, 0.0, accepted=True)),
        (Constant(2.0), ask(), Quote(12.0, 0.0, accepted=True)),
        (Constant(2.0), ask(rate=2.0), Quote(12.0, 0.0, accepted=True)),
        (Constant(2.0), ask(rate=1.9), Quote(12.0, 0.0, accepted=False)),
        (Constant(2.0), ask(rate=2.0, surcharge=0.5), Quote(13.0, 1.0, accepted=False)),
        (Maximum(3.0), ask(rate=1.5), Quote(9.0, 0.0, accepted=True)),
        (Maximum(3.0), ask(), Quote(18.0, 0.0, accepted=True)),
        (Maximum(3.0), ask(rate=1.5, surcharge=9.0), Quote(9.0, 0.0, accepted=True)),
    ],
)
def test_a_price_is_node_hours_times_a_rate(policy, asked, expected):
    assert quote(policy.opened(), asked) == expected


def test_random_rates_lie_between_two_and_depend_on_lease_and_seed_only():
    policy = Random(1.0, 3.0, seed=7)
    rates = {name: policy.opened().rate(ask(name)) for name in map(str, range(200))}
    assert all(1.0 <= rate < 3.0 for rate in rates.values())
    assert min(rates.values()) < 1.1 and max(rates.values()) > 2.9
    assert {name: policy.opened().rate(ask(name)) for name in reversed(rates)} == rates
    assert Random(1.0, 3.0, seed=8).rate(ask("0")) != rates["0"]


def test_adaptive_rates_follow_what_users_accept_and_are_of_one_run():
    """Up by half after accepts, down after refusals, between after both; the median of all."""
    policy = Adaptive(1.0)
    prices = policy.opened()

    def offered(user: str, most: float) -> tuple[float, bool]:
        made = quote(prices, ask(user=user, rate=most))
        return made.price / 6.0, made.accepted

    assert [offered("a", 2.0) for _ in range(4)] == [
        (1.0, True),
        (1.5, True),
        (2.25, False),
        (1.875, True),
    ]
    assert offered("b", 0.1) == (1.875, False)
    assert offered("b", 0.1) == ((1.875 + 0.9375) / 2, False)
    assert policy.opened().rate(ask()) == 1.0


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("free", Free()),
        ("constant:2.5", Constant(2.5)),
        ("random:1-3", Random(1.0, 3.0, 4)),
        ("maximum", Maximum()),
        ("maximum:2", Maximum(2.0)),
        ("Adaptive:1", Adaptive(1.0)),
    ],
)
def test_pricing_is_read_as_people_type_it(text, policy):
    assert parse_pricing(text, 4) == policy


@pytest.mark.parametrize(
    "text", ["", "constant", "constant:x", "constant:-1", "random:1", "free:1", "cheap", "random:-"]
)
def test_other_words_are_no_pricing(text):
    with pytest.raises(ValueError, match="is none of free, constant:RATE"):
        parse_pricing(text)


def test_a_users_rate_is_a_number_from_zero_or_none():
    rates = {text: user_rate_of({"simul_userrate": text}) for text in ("1.5", "0", "-1", "inf", "")}
    assert rates == {"1.5": 1.5, "0": 0.0, "-1": None, "inf": None, "": None}
    assert user_rate_of({}) is None
