"""Our schedules agree, row by row, with those of independent simulators."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.golden_schedules import golden_files, read_golden, schedule_of, workload_of
from tests.support.outside import golden, workloads

FILES = golden_files(golden())


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_schedule_agrees_on_every_row(path: Path):
    expected = read_golden(path)
    workload = workload_of(expected, workloads())
    actual = sorted(schedule_of(expected, workload), key=lambda row: int(row[0]))
    rows = sorted(expected.rows, key=lambda row: int(row[0]))
    assert len(actual) == len(rows)
    differing = [
        (ours, theirs) for ours, theirs in zip(actual, rows, strict=True) if ours != theirs
    ]
    assert differing == []


def test_every_file_on_disk_is_run():
    assert len(FILES) == sum(1 for path in golden().iterdir() if path.name.endswith(".csv.gz"))
