"""Comparing says who gains and who loses, in numbers that add up."""

from __future__ import annotations

import pytest

from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_sim.compare import Moved, Run, differences, show, show_time, table
from tenure_sim.report_figures import summarise
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import Workload

SITE = Site.of_processors(2)
WORKLOAD = Workload(
    "w",
    ids=["wide", "half", "whole", "short"],
    arrivals=[0, 0, 0, 0],
    widths=[1, 2, 2, 1],
    requests=[60_000, 10_000, 10_000, 50_000],
    runs=[60_000, 10_000, 10_000, 50_000],
    owners=["ann", "bob", "bob", "cat"],
)


def run(policy: str) -> Run:
    result = simulate(WORKLOAD, SITE, Policies(backfilling=Backfilling.parse(policy)))
    return Run(policy, result, summarise(result, SITE))


def test_backfilling_starts_one_lease_earlier_and_none_later():
    (difference,) = differences([run("off"), run("easy")])
    assert (difference.earlier, difference.same, difference.later) == (1, 3, 0)
    assert difference.most_advanced == (Moved("short", "cat", -80_000),)
    assert difference.most_delayed == ()
    assert difference.mean_ms == -20_000
    assert difference.owners == (
        Moved("1", "ann", 0),
        Moved("2", "bob", 0),
        Moved("1", "cat", -80_000),
    )


def test_the_other_way_round_is_the_opposite():
    (difference,) = differences([run("easy"), run("off")])
    assert (difference.earlier, difference.later, difference.mean_ms) == (0, 1, 20_000)
    assert difference.most_delayed == (Moved("short", "cat", 80_000),)


def test_the_table_shows_the_change_against_the_first():
    lines = {line.name: line.cells for line in table([run("off").summary, run("easy").summary])}
    assert lines["leases done"] == ("4", "4")
    assert lines["wait, mean"] == ("52.5s", "32.5s (-38.1%)")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1234, "count", "1,234"),
        (0.256, "share", "25.60%"),
        (3.14159, "ratio", "3.14"),
        (5_400_000, "time", "1h30m"),
    ],
)
def test_figures_as_people_read_them(value: float, unit: str, text: str):
    assert show(value, unit) == text


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "0s"),
        (1_500, "1.5s"),
        (-45_000, "-45s"),
        (3_600_000, "1h0m"),
        (90_061_000, "1d1h"),
        (59_999.9, "60s"),
    ],
)
def test_spans_as_people_read_them(millis: float, text: str):
    assert show_time(millis) == text
