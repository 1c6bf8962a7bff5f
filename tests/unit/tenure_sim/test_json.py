"""Traces of our own: what is written reads the same, and every fault has a line."""

from __future__ import annotations

import io
import json

import pytest

from tenure_core.errors import Invalid
from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate, LeaseSpec, Work
from tenure_core.planning.snapshot import NodeView
from tenure_core.resources import ResourceVector
from tenure_sim.site import Site
from tenure_sim.traces_json import parse_json, write_json
from tenure_sim.traces_json_site import site_of_json
from tenure_sim.workload import BadLine, SimLease, Workload

HEADER = '{"format":"tenure-trace","version":1,"name":"w"}'
CPU = ResourceVector({"cpu": 1000})


def lease(**fields: object) -> str:
    base = {"id": "a", "arrival_ms": 5, "duration_ms": 9, "slots": 2, "amounts": {"cpu": 1000}}
    return json.dumps({**base, **fields})


def test_a_lease_with_what_is_required():
    workload, site = parse_json("t", [HEADER, "", lease()])
    assert site is None
    assert (workload.name, workload.ids, workload.arrivals) == ("w", ["a"], [5])
    assert (workload.widths, workload.requests, workload.runs) == ([2], [9], [9])
    assert workload.spec(0).terms == BestEffort()


def test_what_is_written_reads_the_same():
    specs = [
        LeaseSpec("ann", "p", "sim", BestEffort(), 1, CPU, 10),
        LeaseSpec("bob", "p", "sim", Advance(50), 2, CPU, 10, priority=-3, preemptible=False),
        LeaseSpec("ann", "q", "sim", Deadline(90, 20), 1, CPU, 10, node_selector={"k": "v"}),
        LeaseSpec("ann", "q", "sim", Deadline(90), 1, CPU, 10, labels={"l": "ü"}, spread=True),
        LeaseSpec("ann", "q", "sim", Immediate(), 1, CPU, 10, work=Work(image="i")),
    ]
    leases = [SimLease(f"l{i}", i, spec, 7) for i, spec in enumerate(specs)]
    workload = Workload.of("w", leases)
    site = Site(
        (
            NodeView("node-1", ((0, CPU),), {"a": "b"}),
            NodeView("node-2", ((0, CPU),), {"a": "b"}),
            NodeView("node-3", ((0, ResourceVector({"cpu": 5, "memory": 7})),)),
        ),
        frozenset({"cpu", "gpu"}),
    )
    out = io.StringIO()
    write_json(workload, out, site=site)
    assert parse_json("t", out.getvalue().split("\n")) == (workload, site)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "this is no JSON"),
        ("[]", "this is not a JSON object"),
        (lease(slots=0), "slots is a whole number from 1, not 0"),
        (lease(slots=True), "slots is a whole number from 1, not True"),
        (lease(duration_ms=1.5), "duration_ms is a whole number from 1, not 1.5"),
        (lease(amounts={}), "amounts are an object"),
        (lease(amounts={"cpu": "much"}), "'much' is no quantity of cpu"),
        (lease(amounts={"CPU": 1}), "'CPU' is no kind of resource"),
        (lease(amounts={"cpu": -1}), "an amount lies in"),
        (lease(color="red"), "a lease has no field 'color'"),
        (lease(start_ms=3, immediate=True), "exclude one another"),
        (lease(earliest_ms=3), "earliest_ms goes with deadline_ms"),
        (lease(preemptible="no"), "preemptible is true or false"),
        (lease(labels={"a": 1}), "labels is an object of texts"),
        (lease(id="b"), "lease id b is used twice"),
    ],
)
def test_a_bad_lease_is_named_by_line_and_reason(line: str, reason: str):
    lines = [HEADER, lease(id="b"), line]
    with pytest.raises(Invalid) as refused:
        parse_json("t.json", lines)
    (violation,) = refused.value.violations
    assert violation.field == "t.json:3"
    assert reason in violation.description
    workload, _ = parse_json("t.json", lines, skip_bad=True)
    assert workload.ids == ["b"]
    assert workload.bad == (BadLine(3, violation.description),)


@pytest.mark.parametrize("lines", [[], [""], ["{}"], [HEADER.replace("1", "2")], ["no"]])
def test_a_file_that_is_no_trace_is_refused_even_when_bad_lines_are_skipped(lines: list[str]):
    with pytest.raises(Invalid):
        parse_json("t", lines, skip_bad=True)


def test_a_site_takes_amounts_as_people_write_them():
    site = site_of_json(
        {"nodes": [{"count": 2, "amounts": {"cpu": "8", "memory": "16Gi"}, "name": "big"}]}
    )
    assert [node.id for node in site.nodes] == ["big-1", "big-2"]
    assert site.nodes[0].capacity_at(0) == ResourceVector({"cpu": 8000, "memory": 2**34})


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {"nodes": []},
        {"nodes": [1]},
        {"nodes": [{"count": 0, "amounts": {"cpu": 1}}]},
        {"nodes": [{"count": 10**9, "amounts": {"cpu": 1}}]},
        {"nodes": [{"amounts": {"cpu": 1}}], "freed_by_suspending": "cpu"},
    ],
)
def test_a_bad_site_is_refused(value: object):
    with pytest.raises(Invalid):
        site_of_json(value)
