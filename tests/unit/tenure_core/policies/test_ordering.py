"""Orders of the queue: by words, one after another, and nobody waits for ever under any."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.admission import a_lease as a_core_lease
from tests.unit.tenure_core.planning.pool_in_time import Pool, node, spec

from tenure_core.admission import ordering as ancestors
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import LeaseView
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.policies.ordering import FIFO, OrderingTerms, parse_ordering
from tenure_core.policies.ordering_words import Held
from tenure_core.resources import ResourceVector


@dataclass
class Asked:
    """A pool that answers what an order asks."""

    now: int = 0
    running: list[LeaseView] = field(default_factory=list)
    capacity: dict[str, int] = field(default_factory=lambda: {"cpu": 9_000, "memory": 18})
    factors: dict[str, dict[str, Decimal]] = field(default_factory=dict)

    def held(self) -> Held:
        return Held(list(self.running), ResourceVector(self.capacity), self.factors)


def view(name: str, arrival: int, **more: object) -> LeaseView:
    owner, project = str(more.pop("owner", "ann")), str(more.pop("project", "lab"))
    what = replace(spec(**more), owner=owner, project=project)  # type: ignore[arg-type]
    return LeaseView(
        name, what, LeaseState.PENDING, 0, arrival, created=arrival, remaining_ms=what.duration_ms
    )


def order(text: str, leases: list[LeaseView], pool: Asked | None = None, **terms: object) -> str:
    """Return the ids in their order, joined."""
    ordering = parse_ordering(text, OrderingTerms(**terms))  # type: ignore[arg-type]
    return " ".join(each.id for each in ordering.arranged(leases, pool or Asked()))


ABC = [
    view("a", 1, priority=0, duration=30),
    view("b", 2, priority=150, duration=10),
    view("c", 3, priority=120, duration=20),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fifo", "a b c"),
        ("lifo", "c b a"),
        ("shortest", "b c a"),
        ("priority", "b c a"),
        ("priority:100", "b c a"),
        ("priority:100/lifo", "c b a"),
        ("priority:1000/shortest", "b c a"),
    ],
)
def test_words_order_one_after_another_and_arrival_settles_the_rest(
    text: str, expected: str
) -> None:
    assert order(text, list(reversed(ABC))) == expected


def test_fifo_is_by_arrival_and_ages_nobody() -> None:
    assert parse_ordering("fifo") == FIFO
    assert FIFO.arranged([ABC[2], ABC[0]], Asked(10**12)) == [ABC[0], ABC[2]]


@pytest.mark.parametrize("text", ["", "priority:0", "drf:nobody", "fast", "drf/drf", "lifo:1"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"joined by /|different words"):
        parse_ordering(text)


def test_the_worked_example_of_dominant_resource_fairness() -> None:
    """9 CPU, 18 GB; A asks <1, 4>, B <3, 1>: A gets three and B two (Ghodsi et al., section 4)."""
    leases = [view(f"a{n}", n, owner="A", cpu=1, memory=4) for n in range(3)]
    leases += [view(f"b{n}", 10 + n, owner="B", cpu=3, memory=1) for n in range(2)]
    assert order("drf", leases) == "a0 b0 a1 b1 a2"


def test_shares_count_what_runs_and_weights_and_may_be_of_projects() -> None:
    pool = Asked(running=[view("r", 0, owner="A", project="p", cpu=3)])
    leases = [view("a", 1, owner="A", project="p"), view("b", 2, owner="B", project="q")]
    assert order("drf", leases, pool) == "b a"
    assert order("drf:project", leases, pool) == "b a"
    assert order("drf", leases, pool, weights={"A": 100}) == "b a"
    also = Asked(running=[*pool.running, view("s", 0, owner="B", project="q", cpu=1)])
    assert order("drf", leases, also, weights={"A": 4}) == "a b"


def test_fair_share_puts_whoever_used_least_first_and_newcomers_before_all() -> None:
    pool = Asked(factors={"owner": {"A": Decimal("0.5"), "B": Decimal("0.7")}})
    leases = [view(name.lower(), n, owner=name) for n, name in enumerate("ABC")]
    assert order("fair-share", leases, pool) == "c b a"


def test_whoever_waited_too_long_goes_first_by_arrival() -> None:
    old = [replace(view("x", 7), created=-20), replace(view("y", 8), created=-10)]
    assert order("lifo", [*ABC, *old], age_max_ms=10) == "x y c b a"


def test_the_place_in_the_queue_is_explained() -> None:
    ordering = parse_ordering("priority/lifo")
    before = [view("u", 1, priority=9), view("v", 5), view("w", 6)]
    said = ordering.place(view("z", 2), before, Asked())
    assert said == (
        "The queue goes by priority, then the newest first, then by arrival."
        " Before it: 1 of higher priority, 2 that came later."
    )
    assert FIFO.place(ABC[1], [ABC[0]], Asked()) == (
        "The queue goes by arrival. Before it: 1 that came earlier."
    )


_ASKS = st.lists(
    st.tuples(st.sampled_from("ABC"), st.integers(1, 9), st.integers(1, 18)), max_size=12
)


@settings(deadline=None, max_examples=100)
@given(_ASKS, st.integers(1, 5))
def test_shares_in_whole_numbers_order_as_exact_fractions_do(
    asks: list[tuple[str, int, int]], weight: int
) -> None:
    leases = [
        view(f"l{n}", n, owner=owner, cpu=cpu, memory=memory)
        for n, (owner, cpu, memory) in enumerate(asks)
    ]
    core = [
        a_core_lease(f"l{n}", owner=owner, amounts={"cpu": cpu * 1_000, "memory": memory})
        for n, (owner, cpu, memory) in enumerate(asks)
    ]
    facts = ancestors.OrderingFacts(
        capacity={"cpu": 9_000, "memory": 18}, weights={"A": Fraction(weight)}
    )
    expected = ancestors.ordered(core, ancestors.Ordering.DRF, facts)
    assert order("drf", leases, weights={"A": weight}).split() == [each.id for each in expected]


_WORDS = ["lifo", "shortest", "priority", "drf", "fair-share", "priority:10/drf", "shortest/lifo"]
_RIVALS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(0, 9)), min_size=1)
AGE_MS = 40


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(_WORDS),
    st.sampled_from(["off", "easy", "intermediate:2", "cons"]),
    _RIVALS,
    st.integers(1, 3),
)
def test_nobody_waits_for_ever_whoever_comes_and_whatever_the_order(
    words: str, backfilling: str, rivals: list[tuple[int, int, int]], nodes: int
) -> None:
    """Rivals of higher priority, shorter and newer, come at every instant and would fill the pool.

    Whoever has aged has before it only those who aged earlier: here at most one at an instant of
    its age, each of at most nine units.
    """
    policies = Policies(
        backfilling=Backfilling.parse(backfilling),
        ordering=parse_ordering(words, OrderingTerms(age_max_ms=AGE_MS)),
    )
    pool = Pool([node(name) for name in "abc"], policies)
    pool.submit("first", spec(nodes=3, duration=9))
    pool.submit("poor", spec(nodes=nodes, duration=10, priority=-5))
    pool.cycle()
    while "poor" not in pool.starts:
        count, duration, priority = rivals[pool.now % len(rivals)]
        name = f"r{pool.now}"
        what = spec(nodes=count, duration=duration, priority=priority)
        pool.submit(name, replace(what, owner=name))
        pool.run(pool.now + 1)
        assert pool.now <= AGE_MS + 9 * 3 + 10 + 1
