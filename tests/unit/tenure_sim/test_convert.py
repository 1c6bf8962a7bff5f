"""A trace is known by what it says; annotations and workloads are made as described."""

from __future__ import annotations

import gzip
import io
import re
from pathlib import Path
from random import Random

import pytest

from tenure_core.errors import Invalid, NotFound
from tenure_core.leases.lease import Advance, BestEffort
from tenure_core.policies.bundle import Policies
from tenure_core.resources import ResourceVector
from tenure_sim.annotate import annotated
from tenure_sim.annotate_draws import Draws
from tenure_sim.annotate_made import Recipe, write_annotations
from tenure_sim.convert import read_trace, write_trace
from tenure_sim.simulate import simulate
from tenure_sim.site import Site

SWF = "; MaxProcs: 8\n1 0 -1 10 2 -1 -1 2 20 -1 1 5 1 -1 1 -1 -1 -1\n"
TEXT = "0 100 50 40 3 1 1024 0 image 0\n5 -1 50 40 3 1 1024 0 image 0\n"
TABLE = "lease,kind,submit,reqstart,req,run,nodes\nb1,BE,0,-1,9,5,2\nr1,AR,3,60,9,9,1\n"


def write(folder: Path, text: str, *, name: str = "trace", packed: bool = False) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_swf_is_known_by_its_lines_and_its_machine_by_its_header(tmp_path: Path, packed: bool):
    trace = read_trace(write(tmp_path, SWF, packed=packed))
    assert (trace.form, trace.workload.widths, trace.workload.owners) == ("swf", [2], ["5"])
    assert trace.site == Site.of_processors(8)


def test_the_site_that_is_asked_for_wins_and_decides_what_is_too_wide(tmp_path: Path):
    site = Site.of_nodes(1, ResourceVector({"cpu": 1000}))
    trace = read_trace(write(tmp_path, SWF), site=site)
    assert (trace.site, len(trace.workload), trace.workload.left_out) == (site, 0, 1)


def test_a_trace_without_a_machine_needs_one(tmp_path: Path):
    path = write(tmp_path, SWF.replace("; MaxProcs: 8\n", ""))
    with pytest.raises(Invalid, match="give --nodes"):
        read_trace(path)


def test_job_ids_that_repeat_become_different(tmp_path: Path):
    job = SWF.split("\n")[1]
    trace = read_trace(write(tmp_path, f"{SWF}{job}\n{job}\n"))
    assert trace.workload.ids == ["1", "1.2", "1.3"]


def test_old_text_and_plain_tables_are_known(tmp_path: Path):
    text = read_trace(write(tmp_path, TEXT))
    assert (text.form, text.workload.starts) == ("lwf-text", [100_000, None])
    table = read_trace(write(tmp_path, TABLE))
    assert (table.form, table.workload.ids) == ("table", ["b1", "r1"])
    assert (table.workload.starts, table.workload.runs) == ([None, 60_000], [5_000, 9_000])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x,BE,0,-1,9,5", "a lease has 7 fields, this line has 6"),
        ("x,XX,0,-1,9,5,2", "the kind is AR or BE, not 'XX'"),
        ("x,BE,soon,-1,9,5,2", "submit is a whole number of seconds, not 'soon'"),
        ("x,BE,0,-1,0,5,2", "durations and nodes are positive"),
        ("b1,BE,0,-1,1,5,2", "lease id b1 is used twice"),
    ],
)
def test_a_bad_line_of_a_table_is_named(tmp_path: Path, line: str, reason: str):
    path = write(tmp_path, TABLE + line)
    with pytest.raises(Invalid, match=reason):
        read_trace(path)
    workload = read_trace(path, skip_bad=True).workload
    assert [(bad.line, bad.reason) for bad in workload.bad] == [(4, reason)]


def test_a_file_that_is_absent_or_broken_is_said_to_be(tmp_path: Path):
    with pytest.raises(NotFound):
        read_trace(tmp_path / "none")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"x" * 10_000)[:30])
    with pytest.raises(Invalid, match="cannot be read"):
        read_trace(broken)


@pytest.mark.parametrize("form", ["lwf", "json"])
@pytest.mark.parametrize("text", [SWF, TEXT, TABLE])
def test_a_converted_trace_holds_the_same_leases(tmp_path: Path, text: str, form: str):
    site = Site.of_nodes(8, ResourceVector({"cpu": 1000}))
    trace = read_trace(write(tmp_path, text), site=site)
    out = io.StringIO()
    write_trace(trace, form, out)
    again = read_trace(write(tmp_path, out.getvalue(), name="again"))
    ours, theirs = trace.workload, again.workload
    assert theirs.specs is None
    for column in ("ids", "arrivals", "widths", "requests", "runs", "starts"):
        assert list(getattr(theirs, column) or ()) == list(getattr(ours, column) or ()), column
    assert again.site is not None
    assert again.site.slots_of(theirs.slot) == 8


def test_first_takes_the_earliest_even_from_a_trace_out_of_order(tmp_path: Path):
    def job(name: int, submit: int) -> str:
        return f"{name} {submit} -1 10 1 -1 -1 1 20 -1 1 5 1 -1 1 -1 -1 -1"

    lines = [job(1, 50), job(2, 10), job(3, 60), job(4, 5), job(5, 10)]
    path = write(tmp_path, "\n".join(["; MaxProcs: 8", *lines, ""]))
    assert read_trace(path, first=2).workload.ids == ["4", "2"]
    assert read_trace(path, first=3).workload.ids == ["4", "2", "5"]


RECIPE = """
[start-delay]
distribution = uniform
min = 60
max = 120
[deadline-stretch]
distribution = normal
mu = 1
sigma = 0.5
min = 0.5
max = 2
[user-rate]
distribution = discrete
values = 0.5 1.5
[software]
distribution = discrete
values = a.img|100 b.img|200
"""


def test_made_annotations_apply_to_the_trace_that_they_were_made_for(tmp_path: Path):
    trace = read_trace(write(tmp_path, SWF))
    out = io.StringIO()
    made = Recipe("r", RECIPE, seed=4).annotations([("5", 20_000)])
    write_annotations(trace.workload.ids, made, out)
    spec = annotated(trace.workload, "a", out.getvalue().encode()).spec(0)
    start = spec.terms.earliest_start
    assert 60_000 <= start <= 120_000
    assert start + 30_000 <= spec.terms.deadline <= start + 60_000
    assert spec.work.image in ("a.img", "b.img")
    assert spec.labels["simul_userrate"] in ("0.5", "1.5")


def test_an_owner_has_one_rate_and_a_seed_one_outcome():
    owners = [("ann", 1_000), ("bob", 1_000), ("ann", 2_000)]
    text = "[user-rate]\nmin = 0\nmax = 9\n"
    first = list(Recipe("r", text, 1).annotations(owners))
    assert first == list(Recipe("r", text, 1).annotations(owners))
    assert first[0].rate == first[2].rate != first[1].rate


GENERATOR = """
[numleases]
numleases = 20
[interval]
min = 10
max = 10
[nodes]
resources = CPU:200 Memory:512
min = 1
max = 4
[duration]
distribution = bounded-pareto
alpha = 1.5
min = 60
max = 600
"""


def test_a_generated_workload_has_what_its_configuration_says():
    workload = Recipe("r", GENERATOR, seed=2).leases("g", slots=3)
    assert workload.arrivals == [10_000 * i for i in range(20)]
    assert set(workload.widths) <= {1, 2, 3}
    assert all(60_000 <= each <= 600_000 for each in workload.requests)
    assert workload.spec(0).terms == BestEffort()
    assert workload.spec(0).amounts == ResourceVector({"cpu": 2000, "memory": 2**29})


def test_generation_stops_at_the_utilisation_that_is_wanted():
    text = GENERATOR.replace(
        "numleases = 20", "type = utilization\nutilization = 50\nlast-request = 10000"
    ).replace("max = 4", "max = 1")
    delayed = "[start-delay]\ntype = multiple-of-duration\nmin = 1\nmax = 1\n" + text
    workload = Recipe("r", delayed, seed=2).leases("g", slots=1)
    work = sum(workload.requests)
    assert 5_000_000 <= work < 5_000_000 + 600_000
    assert workload.spec(0).terms == Advance(workload.requests[0])


@pytest.mark.parametrize(
    ("options", "low", "high"),
    [
        ({"distribution": "uniform", "min": "2", "max": "3"}, 2, 3),
        ({"distribution": "normal", "mu": "0", "sigma": "9", "min": "-1", "max": "1"}, -1, 1),
        ({"distribution": "bounded-pareto", "alpha": "1", "min": "1", "max": "5"}, 1, 5),
        ({"distribution": "truncated-pareto", "alpha": "1", "min": "1", "max": "5"}, 1, 5),
        ({"distribution": "discrete", "values": "1 2 4", "weights": "1 1 8"}, 1, 4),
    ],
)
def test_draws_stay_between_their_bounds(options: dict[str, str], low: float, high: float):
    rng = Random(3)
    drawn = [Draws("s", options).number(rng) for _ in range(300)]
    assert low <= min(drawn) < max(drawn) <= high
    mirrored = Draws("s", {**options, "invert": "true"})
    if options["distribution"] == "bounded-pareto":
        assert sum(mirrored.number(rng) for _ in range(300)) > sum(drawn)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min": "a", "max": "2"},
        {"min": "3", "max": "2"},
        {"distribution": "odd", "min": "1", "max": "2"},
        {"distribution": "discrete", "values": ""},
        {"distribution": "discrete", "values": "a"},
        {"distribution": "discrete", "values": "1 2", "weights": "1"},
        {"distribution": "bounded-pareto", "alpha": "1", "min": "0", "max": "2"},
    ],
)
def test_a_section_that_describes_no_values_is_refused(options: dict[str, str]):
    with pytest.raises(Invalid):
        Draws("s", options).number(Random(1))


@pytest.mark.parametrize("text", ["no section", "[nodes]\nmin=1\nmax=1", "[numleases]\n"])
def test_a_configuration_that_lacks_something_is_refused(text: str):
    with pytest.raises(Invalid):
        Recipe("r", text, 1).leases("g", 4)


XML = (
    '<lease-workload name="w"><site><nodes><node-set numnodes="2"><res type="CPU" amount="100"/>'
    '</node-set></nodes></site><lease-requests><lease-request arrival="00:00:10"><realduration '
    'time="00:01:00"/><lease id="1" preemptible="true" user="2"><nodes><node-set numnodes="2">'
    '<res type="CPU" amount="50"/></node-set></nodes><start><exact time="00:10:00"/></start>'
    '<duration time="00:10:00"/><deadline time="00:50:00"/></lease></lease-request>'
    "</lease-requests></lease-workload>"
)
JSON = (
    '{"format":"tenure-trace","version":1,"name":"w","site":{"nodes":[{"count":2,"amounts":'
    '{"cpu":1000}}]}}\n{"id":"a","arrival_ms":5,"duration_ms":9,"slots":2,"amounts":{"cpu":1000},'
    '"start_ms":70}\n{"id":"b","arrival_ms":5,"duration_ms":9,"slots":1,"amounts":{"cpu":500},'
    '"deadline_ms":70}\n'
)
ODD = (
    "-1", "0", "1e9", "9" * 20, "9" * 400, "nan", "inf", '"', "<", ">", "{", "}", "", "\0", "é",
    "-", "3.5", "true", "null", '"x"', "00:00:00", "1:2:3:4:5",
)  # fmt: skip


@pytest.mark.parametrize("text", [SWF, TEXT, TABLE, XML, JSON], ids=range(5))
def test_a_spoilt_trace_is_refused_or_runs_to_its_end(tmp_path: Path, text: str):
    """Whatever a file says, reading it ends with a trace or with an error that says where."""
    rng = Random(20261130)
    pieces = re.split(r"(\s+|[,\"=:])", text)
    site = Site.of_nodes(4, ResourceVector({"cpu": 2000}))
    outcomes = {"refused": 0, "ran": 0}
    for _ in range(150):
        spoilt = list(pieces)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(spoilt))
            spoilt[place : place + rng.randrange(2)] = [rng.choice((*ODD, rng.choice(spoilt)))]
        path = write(tmp_path, "".join(spoilt))
        try:
            trace = read_trace(path, site=rng.choice((site, None)), skip_bad=rng.random() < 0.5)
        except Invalid:
            outcomes["refused"] += 1
            continue
        if trace.site is not None:
            result = simulate(trace.workload, trace.site, Policies())
            assert set(result.states) <= {"DONE", "REJECTED"}
            outcomes["ran"] += 1
    assert min(outcomes.values()) > 5, outcomes


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("x,BE,99999999999999999999,-1,9,5,2", "its arrival lies outside"),
        ("x,BE,-5,-1,9,5,2", "its arrival lies outside"),
        ("x,AR,0,99999999999999999999,9,5,2", "its start lies outside"),
        ("x,BE,0,-1,99999999999999999999,5,2", "its duration lies outside"),
        ("x,BE,0,-1,9,5,2000000", "it asks for more than 1,000,000 slots"),
    ],
)
def test_what_no_lease_may_exceed_is_refused_by_the_leases_name(
    tmp_path: Path, row: str, fault: str
):
    path = write(tmp_path, TABLE + row)
    with pytest.raises(Invalid, match=fault) as refused:
        read_trace(path)
    assert refused.value.violations[0].field == "trace: lease x"
    workload = read_trace(path, skip_bad=True).workload
    assert sorted(workload.ids) == ["b1", "r1"]
    assert fault in workload.bad[0].reason
