"""Figures are what their definitions say, and the page holds them and nothing from outside."""

from __future__ import annotations

import re
from dataclasses import replace

from tenure_core.leases.lease import BestEffort, LeaseSpec
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_sim.compare import Run
from tenure_sim.report import Subject, page, pictures
from tenure_sim.report_figures import jain, loads, summarise
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import BadLine, SimLease, Workload

CPU = ResourceVector({"cpu": 1000})
SITE = Site.of_processors(2)
WORKLOAD = Workload(
    "w",
    ids=["1", "2", "3", "4"],
    arrivals=[0, 0, 10_000, 20_000],
    widths=[2, 1, 2, 1],
    requests=[60_000, 60_000, 30_000, 10_000],
    runs=[60_000, 40_000, 30_000, 5_000],
    owners=["ann", "bob", "ann", "<b>"],
    bad=(BadLine(9, "a <b> line"),),
    left_out=3,
)


def run(policy: str, workload: Workload = WORKLOAD, site: Site = SITE) -> Run:
    result = simulate(workload, site, Policies(backfilling=Backfilling.parse(policy)))
    return Run(policy, result, summarise(result, site))


def test_figures_by_hand():
    """1 runs 0-60, 2 runs 60-100, 4 passes 3 and runs 60-65, 3 runs 100-130 (seconds)."""
    ours = run("easy")
    assert ours.result.starts == [0, 60_000, 100_000, 60_000]
    figures = ours.summary.all
    assert (figures.leases, figures.done, figures.rejected) == (4, 4, 0)
    assert figures.wait_mean_ms == (0 + 60_000 + 90_000 + 40_000) / 4
    assert (figures.wait_median_ms, figures.wait_p95_ms) == (40_000, 90_000)
    assert figures.wait_max_ms == 90_000
    assert figures.slowdown_mean == (1 + 2.5 + 4 + 9) / 4
    assert figures.bounded_slowdown_mean == (1 + 2.5 + 4 + 4.5) / 4
    assert figures.slot_hours == round((120 + 40 + 60 + 5) / 3600, 3)
    assert ours.summary.utilisation == round(225 / 260, 6)
    assert (ours.summary.bad_lines, ours.summary.left_out) == (1, 3)


def test_owners_and_their_fairness():
    summary = run("easy").summary
    assert sorted(summary.by_owner) == ["<b>", "ann", "bob"]
    assert summary.by_owner["ann"].wait_mean_ms == 45_000
    assert summary.fairness == jain([4.5, 2.5, 2.5])
    assert (jain([3, 3, 3]), jain([1, 0, 0]), jain([])) == (1.0, round(1 / 3, 6), 1.0)


def test_unlike_slots_are_weighed_by_their_processors():
    specs = [
        LeaseSpec("a", "p", "sim", BestEffort(), 1, ResourceVector({"cpu": cpu}), 10_000)
        for cpu in (1000, 3000)
    ]
    workload = Workload.of("w", [SimLease(f"l{i}", 0, s, 10_000) for i, s in enumerate(specs)])
    site = Site.of_nodes(2, ResourceVector({"cpu": 4000}))
    assert loads(workload, site) == ([1000, 3000], 8000)
    assert run("easy", workload, site).summary.utilisation == 0.5


def test_an_empty_workload_has_figures_and_a_page():
    empty = WORKLOAD.first(0)
    ours = run("easy", empty)
    assert (ours.summary.all.leases, ours.summary.utilisation) == (0, 0.0)
    subject = Subject("t", SITE, [])
    assert "</html>" in page([ours], subject, pictures([ours], subject))


def test_the_page_needs_nothing_from_outside_and_escapes_what_users_named():
    runs = [run("easy"), run("off")]
    subject = Subject("w <under> two", SITE, [("seed", "0")])
    text = page(runs, subject, pictures(runs, subject))
    outside = re.sub(r'xmlns="[^"]*"', "", text)
    assert not re.search(r"https?://|<script|<link|src=|@import|url\(", outside)
    assert "<b>" not in text
    assert "&lt;b&gt;" in text
    assert text.count("<svg") == 4
    for said in ("off against easy", "a &lt;b&gt; line", "Jain", "1 lines left out"):
        assert said in text


def test_the_same_runs_give_the_same_page():
    def made() -> str:
        runs = [run("easy"), run("conservative")]
        subject = Subject("t", SITE, [])
        return page(runs, subject, pictures(runs, subject))

    assert made() == made()


def test_a_lease_that_never_ran_counts_in_no_mean():
    wide = replace(WORKLOAD, starts=[None, 0, None, None])
    ours = run("easy", wide)
    assert ours.summary.by_kind["ADVANCE"].leases == 1
    assert ours.summary.all.leases == 4
