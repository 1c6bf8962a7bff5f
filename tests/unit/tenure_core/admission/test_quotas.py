from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.admission.quotas import (
    Charge,
    Excess,
    Held,
    Limit,
    QuotaBook,
    Scope,
    count_reached,
    exceeded,
    policy_count,
)

GPU_AND_CPU = {"cpu": 8, "gpu": 1}


def test_a_request_that_meets_the_limit_exactly_is_allowed() -> None:
    assert exceeded({"cpu": 4}, {"cpu": 4}, {"cpu": 8}) == ()


def test_the_excess_names_what_is_held_asked_and_allowed() -> None:
    (excess,) = exceeded({"cpu": 7}, {"cpu": 4}, {"cpu": 10})

    assert excess == Excess("cpu", 7, 4, 10)
    assert excess.by == 1


def test_a_kind_that_is_not_named_is_limited_to_nothing_and_none_is_no_limit() -> None:
    assert [e.kind for e in exceeded({}, GPU_AND_CPU, {"cpu": None})] == ["gpu"]


def test_being_over_in_one_kind_does_not_stop_work_that_asks_nothing_of_it() -> None:
    held, limit = {"cpu": 9}, {"cpu": 8, "memory": 10}

    assert exceeded(held, {"memory": 1}, limit) == ()
    assert exceeded(held, {"memory": 1}, limit, raised_kinds_only=False) == (
        Excess("cpu", 9, 0, 8),
    )


def test_a_count_is_reached_by_the_lease_that_would_be_one_too_many() -> None:
    assert [count_reached(n, 2) for n in (0, 1, 2, 3)] == [False, False, True, True]
    assert not count_reached(10**6, None)


def test_zero_or_less_in_a_policy_means_no_limit() -> None:
    assert [policy_count(n) for n in (None, -1, 0, 3)] == [None, None, None, 3]


def test_charging_and_releasing_twice_does_what_once_does() -> None:
    book = QuotaBook()
    charge = Charge(((Scope.OWNER, "ann"), (Scope.PROJECT, "p")), {"cpu": 2})

    assert [book.charge("l1", charge), book.charge("l1", charge)] == [True, False]
    assert book.held(Scope.OWNER, "ann") == Held({"cpu": 2}, leases=1)
    assert [book.release("l1"), book.release("l1")] == [True, False]
    assert book.held(Scope.PROJECT, "p") == Held({"cpu": 0})


def test_private_leases_are_counted_apart() -> None:
    book = QuotaBook()
    book.charge("l1", Charge(((Scope.OWNER, "ann"),), {"cpu": 1}, private=True))

    assert book.held(Scope.OWNER, "ann") == Held({"cpu": 1}, leases=0, private_leases=1)
    assert Limit(leases=1).private_leases is None


_accounts = st.lists(
    st.tuples(st.sampled_from(Scope), st.sampled_from("ab")), min_size=1, max_size=4, unique=True
)
_amounts = st.dictionaries(st.sampled_from(("cpu", "gpu")), st.integers(0, 9))
_charges = st.builds(Charge, _accounts.map(tuple), _amounts, st.booleans())
_moves = st.lists(
    st.tuples(st.sampled_from(("l1", "l2", "l3", "l4")), st.none() | _charges), max_size=40
)


@settings(deadline=None)
@given(_moves)
def test_usage_is_the_sum_over_the_charged_leases_after_any_moves(
    moves: list[tuple[str, Charge | None]],
) -> None:
    book = QuotaBook()
    charged: dict[str, Charge] = {}
    for lease, charge in moves:
        if charge is None:
            book.release(lease)
            charged.pop(lease, None)
        else:
            book.charge(lease, charge)
            charged.setdefault(lease, charge)

        for account in {a for c in charged.values() for a in c.accounts}:
            mine = [c for c in charged.values() if account in c.accounts]
            held = book.held(*account)
            assert held.leases + held.private_leases == len(mine)
            for kind in ("cpu", "gpu"):
                total = sum(c.amounts.get(kind, 0) for c in mine)
                assert held.amounts.get(kind, 0) == total
        assert book.verify() == []
