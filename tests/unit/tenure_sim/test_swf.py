"""Traces are read by the stated rules; a line that is no job is named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tenure_core.errors import Invalid
from tenure_sim.swf import parse_swf, read_swf
from tenure_sim.workload import BadLine


def job(number=1, submit=0, run=10, given=1, asked=1, request=20) -> str:
    return f"{number} {submit} -1 {run} {given} -1 -1 {asked} {request} -1 1 1 1 -1 1 -1 -1 -1"


def test_a_job_becomes_a_lease_in_milliseconds():
    workload = parse_swf("t", ["; comment", "", job(7, 3, 10, 2, 4, 20)], processors=8)
    assert (workload.ids, workload.arrivals, workload.widths) == (["7"], [3000], [4])
    assert (workload.requests, workload.runs) == ([20_000], [10_000])


def test_width_falls_back_to_the_processors_given():
    assert parse_swf("t", [job(given=3, asked=-1)], processors=8).widths == [3]


def test_a_missing_request_is_the_run_time_and_a_run_above_the_request_is_cut():
    workload = parse_swf("t", [job(request=-1), job(run=30, request=20)], processors=8)
    assert (workload.requests, workload.runs) == ([10_000, 20_000], [10_000, 20_000])


def test_jobs_without_width_or_run_time_or_wider_than_the_machine_are_left_out():
    lines = [job(1, given=0, asked=0), job(2, run=0), job(3, asked=9), job(4)]
    assert parse_swf("t", lines, processors=8).ids == ["4"]


def test_jobs_are_sorted_by_submit_time_with_ties_in_file_order():
    lines = [job(3, 5), job(2, 1), job(1, 1)]
    assert parse_swf("t", lines, processors=8).ids == ["2", "1", "3"]
    assert parse_swf("t", lines, processors=8, first=2).ids == ["2", "1"]


def test_fractions_are_cut_to_whole_seconds():
    workload = parse_swf("t", [job(run="10.7", submit="3.2")], processors=8)
    assert (workload.arrivals, workload.runs) == ([3000], [10_000])


def test_bad_lines_are_all_named_with_the_reason():
    lines = [job(), "1 2 3", job(run="ten"), job(run="nan")]
    with pytest.raises(Invalid) as caught:
        parse_swf("t.swf", lines, processors=8)
    assert [(v.field, v.description) for v in caught.value.violations] == [
        ("t.swf:2", "a job has 18 fields, this line has 3"),
        ("t.swf:3", "field 4 is 'ten', not a number"),
        ("t.swf:4", "field 4 is 'nan', not a finite number"),
    ]


def test_bad_lines_may_be_skipped_and_are_counted():
    workload = parse_swf("t", [job(), "1 2 3"], processors=8, skip_bad=True)
    assert workload.ids == ["1"]
    assert workload.bad == (BadLine(2, "a job has 18 fields, this line has 3"),)


def test_gzipped_files_are_read_and_the_name_is_kept(tmp_path: Path):
    path = tmp_path / "trace.swf.gz"
    path.write_bytes(gzip.compress((job() + "\n").encode()))
    workload = read_swf(path, processors=8)
    assert (workload.name, workload.ids) == ("trace", ["1"])
