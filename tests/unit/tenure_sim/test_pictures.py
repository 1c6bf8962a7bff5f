"""Pictures show what happened: every bar lies where its run was, every curve is a mean."""

from __future__ import annotations

import random
from xml.etree import ElementTree

import pytest

from tenure_core.errors import WrongState
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_sim import pictures_png
from tenure_sim.compare import Run
from tenure_sim.pictures import Panel, round_up
from tenure_sim.pictures_gantt import LEASES_MAX, _bound, _counted, _shown, gantt_svg
from tenure_sim.pictures_load import _means, load_svg
from tenure_sim.pictures_spread import spread_svg
from tenure_sim.report_figures import summarise
from tenure_sim.result import SimulationResult, Stretch
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import Workload

SVG = "{http://www.w3.org/2000/svg}"


def some(count: int, seed: int = 1, starts: bool = False) -> Workload:
    rng = random.Random(seed)
    arrivals = sorted(rng.randrange(0, 40_000 * count) for _ in range(count))
    runs = [rng.randrange(1, 900) * 1000 for _ in range(count)]
    return Workload(
        "w",
        ids=[f"job<{i}>" for i in range(count)],
        arrivals=arrivals,
        widths=[rng.randrange(1, 9) for _ in range(count)],
        requests=[run * 2 for run in runs],
        runs=runs,
        starts=[at + 50_000 if starts and i % 4 == 0 else None for i, at in enumerate(arrivals)]
        if starts
        else None,
    )


def result_of(workload: Workload, site: Site) -> Run:
    result = simulate(workload, site, Policies())
    return Run("easy", result, summarise(result, site))


def rects(svg: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [each for each in root.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]


def test_counted_runs_never_share_a_slot_and_fill_as_many_as_they_took():
    workload, site = some(120), Site.of_processors(16)
    result = result_of(workload, site).result
    bars = list(_counted(result, _shown(result)[0], 16))
    taken: dict[int, float] = {}
    for bar in bars:
        taken[bar.lease] = taken.get(bar.lease, 0) + bar.rows
        assert bar.row >= 0 and bar.row + bar.rows <= 16
    assert taken == dict(enumerate(map(float, workload.widths)))
    for i, one in enumerate(bars):
        for other in bars[i + 1 :]:
            in_time = one.start < other.end and other.start < one.end
            assert not (
                in_time and one.row < other.row + other.rows and other.row < one.row + one.rows
            )


def test_bound_runs_lie_on_the_rows_of_their_nodes():
    stretches = [
        Stretch(0, 0, 10, ("b", "a", "a")),
        Stretch(1, 5, 20, ("b",)),
        Stretch(2, 12, 20, ("a",)),
    ]
    bars, names = _bound(stretches)
    assert names == ["a", "b"]
    found = {(bar.lease, bar.row, bar.rows) for bar in bars}
    assert found == {(0, 0, 1), (0, 1, 0.5), (1, 1.5, 0.5), (2, 0, 1)}


def test_a_run_on_neighbouring_whole_nodes_is_one_bar():
    bars, _ = _bound([Stretch(0, 0, 10, ("a", "b", "c"))])
    assert [(bar.row, bar.rows) for bar in bars] == [(0, 3)]


@pytest.mark.parametrize("starts", [False, True])
def test_every_run_is_drawn_inside_the_picture(starts: bool):
    site = Site.of_nodes(6, ResourceVector({"cpu": 2000}))
    run = result_of(some(60, starts=starts), site)
    drawn = rects(gantt_svg(run.result, site, "t"))
    assert len(drawn) >= sum(start is not None for start in run.result.starts) > 0
    for rect in drawn:
        x, width = float(rect.get("x", "")), float(rect.get("width", ""))
        assert x >= 77 and x + width <= 1077


def test_of_many_runs_the_first_are_drawn_and_the_picture_says_so():
    site = Site.of_processors(64)
    svg = gantt_svg(result_of(some(LEASES_MAX + 50), site).result, site, "t")
    assert f"the first {LEASES_MAX:,} of {LEASES_MAX + 50:,} runs" in svg


def test_columns_hold_the_mean_of_their_span():
    means = _means([(0, 4), (480, -2), (960, -2)], 0, 960)
    assert means == pytest.approx([4.0] * 240 + [2.0] * 240)
    assert sum(_means([(3, 5), (8, -5)], 0, 960)) * 2 == pytest.approx(25)
    assert _means([], 0, 10) == [0.0] * 480


def test_curves_of_two_policies_are_well_formed_and_named():
    site = Site.of_processors(16)
    runs = [result_of(some(50), site), Run("a <b>", *_pair(some(50), site))]
    for svg in (load_svg(runs, site, "t"), spread_svg(runs, "t")):
        ElementTree.fromstring(svg)
        assert "a &lt;b&gt;" in svg


def _pair(workload: Workload, site: Site) -> tuple[SimulationResult, object]:
    run = result_of(workload, site)
    return run.result, run.summary


def test_axes_end_at_round_numbers():
    assert [round_up(each) for each in (0, 3.2, 5, 9, 13, 17, 21, 130, 4_001)] == [
        4, 4, 8, 12, 16, 20, 40, 160, 8_000,
    ]  # fmt: skip


def test_a_logarithmic_panel_puts_decades_at_equal_distances():
    panel = Panel(0, 0, 300, 100, 1, 1_000, logarithmic=True)
    assert [round(panel.at(each), 6) for each in (0, 1, 10, 100, 1_000, 5_000)] == [
        0, 0, 100, 200, 300, 300,
    ]  # fmt: skip


def test_without_a_renderer_png_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pictures_png.shutil, "which", lambda _: None)
    monkeypatch.setitem(__import__("sys").modules, "cairosvg", None)
    with pytest.raises(WrongState, match="rsvg-convert"):
        pictures_png.renderer()
