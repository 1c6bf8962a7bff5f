"""The ancestor's own outcomes, case by case: ours agree, or the fault that decides is named.

A case agrees when every lease has the same state, times, nodes of every stretch, suspensions,
resumptions, transfers, migrations and preemptions. Where the ancestor took leases from a set in the
order of their addresses (fault 16 of the specification) a case may agree in another order, or
differ from that instant on; both are counted apart. Nothing differs for another reason.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.golden_haizea import Outcome, compare, read_cases
from tests.support.outside import golden

FOLDER = golden() / "haizea"
CONVERSIONS = "1.1-conversions.json"
FILES = sorted(path for path in FOLDER.glob("*.json") if path.name != CONVERSIONS)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_cases_agree_with_the_ancestor(path: Path):
    cases = list(read_cases(path))
    outcomes = [(case, *compare(case)) for case in cases]
    document = json.loads(path.read_text())
    assert len(outcomes) == sum(len(workload["cases"]) for workload in document["workloads"])
    counts = Counter(outcome for _, outcome, _ in outcomes)
    assert not counts[Outcome.DIFFERS], [
        (case.workload, case.number, detail)
        for case, outcome, detail in outcomes
        if outcome is Outcome.DIFFERS
    ]
    assert not counts[Outcome.UNSUPPORTED], {
        detail for _, outcome, detail in outcomes if outcome is Outcome.UNSUPPORTED
    }


def test_every_file_on_disk_is_read():
    assert {path.name for path in FOLDER.iterdir()} - {path.name for path in FILES} == {
        "README.md",
        CONVERSIONS,
    }
