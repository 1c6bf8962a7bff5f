"""Priced simulations: who pays, who refuses, and what was missed."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.offered_policies import LABORATORY, offer

from tenure_cli.simulation.policy_words import PolicyWords, parse_policy
from tenure_core.leases.lease import Advance, BestEffort, LeaseSpec, Terms
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Overheads, Policies
from tenure_core.policies.preemption import NoPreemption
from tenure_core.policies.pricing import Constant, Maximum, Random
from tenure_core.resources import ResourceVector
from tenure_core.timebase import HOUR_MS
from tenure_sim.report_figures import summarise
from tenure_sim.revenue import Revenue
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import SimLease, Workload

SITE = Site.of_nodes(4, ResourceVector({"cpu": 1}))


def lease(
    name: str,
    arrival: int,
    hours: int,
    slots: int = 1,
    rate: float | None = None,
    terms: Terms | None = None,
    owner: str = "ann",
) -> SimLease:
    spec = LeaseSpec(
        owner,
        "p",
        "sim",
        terms or BestEffort(),
        slots,
        ResourceVector({"cpu": 1}),
        hours * HOUR_MS,
        labels={} if rate is None else {"simul_userrate": str(rate)},
    )
    return SimLease(name, arrival, spec, hours * HOUR_MS)


def run(leases: list[SimLease], **policies: object):
    return simulate(Workload.of("w", leases), SITE, Policies(**policies))  # type: ignore[arg-type]


def test_who_would_pay_less_is_refused_and_what_was_missed_is_told():
    """An advance lease that suspends two nodes for half an hour in all pays for that too."""
    result = run(
        [
            lease("queued", 0, 4, 2, rate=3.0),
            lease("dear", 0, 1, 2, rate=1.5),
            lease("silent", 0, 1, 2),
            lease("booked", 1, 2, 4, rate=2.5, terms=Advance(2 * HOUR_MS)),
            lease("again", 2, 2, 4, rate=9.0, terms=Advance(2 * HOUR_MS)),
        ],
        pricing=Constant(2.0),
        overheads=Overheads(HOUR_MS // 8, HOUR_MS // 8),
    )
    assert list(zip(result.states, result.reasons, strict=True)) == [
        ("DONE", ""),
        ("REJECTED", "PRICE_REFUSED"),
        ("DONE", ""),
        ("DONE", ""),
        ("REJECTED", "NOT_AVAILABLE_AT_START"),
    ]
    summary = summarise(result, SITE)
    assert summary.revenue == Revenue(
        revenue=8 * 2.0 + 2 * 2.0 + 8 * 2.0 + 1.0,
        surcharge=1.0,
        missed_by_undercharging=8 * 1.0 + 8 * 0.5 - 1.0,
        missed_by_rejection=8 * 9.0,
        missed_by_refusal=2 * 1.5,
    )
    assert summary.revenue.missed == 86.0
    out = io.StringIO()
    result.write_csv(out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [(row["price"], row["surcharge"]) for row in rows] == [
        ("16.0", "0.0"),
        ("4.0", "0.0"),
        ("4.0", "0.0"),
        ("17.0", "1.0"),
        ("", ""),
    ]
    assert [row[-2:] for row in result.rows()][3] == (17.0, 1.0)


def test_a_surcharge_may_be_what_makes_a_user_refuse_and_then_nobody_is_suspended():
    result = run(
        [lease("queued", 0, 4, 4), lease("booked", 1, 2, 4, rate=2.0, terms=Advance(HOUR_MS))],
        pricing=Constant(2.0),
        overheads=Overheads(HOUR_MS // 8, HOUR_MS // 8),
    )
    assert list(result.reasons) == ["", "PRICE_REFUSED"]
    assert (result.ends[0], list(result.preemptions)) == (4 * HOUR_MS, [0, 0])


def test_where_all_is_free_nothing_is_said_of_money():
    result = run([lease("a", 0, 1, rate=0.0)])
    assert (result.states, result.quotes, result.columns[-1]) == (["DONE"], None, "owner")
    assert "revenue" not in summarise(result, SITE).as_json()


def test_a_price_of_somebody_elses_package(tmp_path, monkeypatch):
    offer(monkeypatch, tmp_path, LABORATORY)
    words = parse_policy("easy+pricing=students-free", PolicyWords())
    leases = [lease("a", 0, 2, owner="student-1"), lease("b", 0, 2, owner="ann")]
    result = simulate(Workload.of("w", leases), SITE, words.bundle())
    assert [quote.price for quote in result.quotes] == [0.0, 2.0]


LEASES = st.lists(
    st.tuples(
        st.integers(0, 3),  # gap, hours
        st.integers(1, 4),  # slots
        st.integers(1, 5),  # hours
        st.sampled_from([None, 0.5, 1.0, 2.0]),  # rate
        st.sampled_from([None, None, 0, 5]),  # advance, ahead
    ),
    min_size=1,
    max_size=15,
)


@given(
    LEASES,
    st.sampled_from([Constant(1.0), Maximum(1.0), Random(0.0, 2.0, 1)]),
    st.sampled_from([Backfilling.EASY, Backfilling.CONSERVATIVE]),
)
@settings(max_examples=100, deadline=None)
def test_the_refused_are_as_if_they_had_never_come_and_sums_are_sums(entries, pricing, backfilling):
    leases, at = [], 0
    for number, (gap, slots, hours, rate, ahead) in enumerate(entries):
        at += gap * HOUR_MS
        terms = None if ahead is None else Advance(at + ahead * HOUR_MS)
        leases.append(lease(f"l{number}", at, hours, slots, rate, terms))
    policies = {"backfilling": backfilling, "preemption": NoPreemption()}
    priced = run(leases, pricing=pricing, **policies)
    refused = {i for i, reason in enumerate(priced.reasons) if reason == "PRICE_REFUSED"}
    kept = [i for i in range(len(leases)) if i not in refused]
    plain = run([leases[i] for i in kept], **policies)
    assert [priced.starts[i] for i in kept] == list(plain.starts)
    paid = 0.0
    for index, (_, slots, hours, rate, _) in enumerate(entries):
        quote = priced.quotes[index]
        if index in refused:
            assert rate is not None and quote.price > slots * hours * rate
        elif priced.states[index] == "DONE":
            assert rate is None or quote.price <= slots * hours * rate
            paid += quote.price
        else:
            assert quote is None
    assert summarise(priced, SITE).revenue.revenue == pytest.approx(paid, abs=1e-6)
