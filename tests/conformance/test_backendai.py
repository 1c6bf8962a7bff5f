"""Every case of the ancestor's scheduler, asked of the core.

A suite, an operation or a field that is not known fails. A case that the suites mark `quirk` or
`differs` may be answered better; then a rule derived by hand says what better is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pytest
from tests.conformance import (
    backendai_ledger,
    backendai_measures,
    backendai_requests,
    backendai_retries,
    backendai_scheduling,
    backendai_seed,
    backendai_slots,
    backendai_states,
)
from tests.conformance.backendai_case import Case, Operation, UnknownCase, read_suite, settle
from tests.support.outside import cases

FOLDER: Final = cases("backendai")
FILES: Final = sorted(FOLDER.glob("*.json"))
CASES: Final = [case for path in FILES for case in read_suite(path)]

SUITES: Final[Mapping[str, Mapping[str, Operation]]] = {
    "resource-slot": backendai_slots.OPERATIONS,
    "resource-preset": backendai_requests.OPERATIONS,
    "kernel-preparation": backendai_requests.OPERATIONS,
    "enqueue-check": backendai_requests.OPERATIONS,
    "seed-lifecycle": backendai_states.OPERATIONS,
    "seed-tick": backendai_states.OPERATIONS,
    "agent-lifecycle": backendai_states.OPERATIONS,
    "lifecycle": backendai_states.OPERATIONS,
    "promotion": backendai_states.OPERATIONS,
    "idle-check": backendai_measures.OPERATIONS,
    "usage-metering": backendai_measures.OPERATIONS,
    "fair-share": backendai_measures.OPERATIONS,
    "retry-classification": backendai_retries.OPERATIONS,
    "seed-predicates": backendai_seed.OPERATIONS,
    "seed-pass": backendai_seed.OPERATIONS,
    "sequencing": backendai_scheduling.OPERATIONS,
    "validation": backendai_scheduling.OPERATIONS,
    "strategy-pick": backendai_scheduling.OPERATIONS,
    "placement": backendai_scheduling.OPERATIONS,
    "preemption": backendai_scheduling.OPERATIONS,
    "queue-pass": backendai_scheduling.OPERATIONS,
    "ledger": backendai_ledger.OPERATIONS,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.suite}/{case.id}")
def test_the_core_answers_as_expected_or_better(case: Case) -> None:
    if case.suite not in SUITES:
        raise UnknownCase(f"{case.id}: suite {case.suite}")
    settle(case, SUITES[case.suite])


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.op == "schedule_pass"],
    ids=lambda case: f"{case.suite}/{case.id}",
)
def test_our_own_pass_is_sound_whether_or_not_it_must_differ(case: Case) -> None:
    backendai_scheduling.schedule_pass_better(case)


def test_every_case_on_disk_is_run() -> None:
    on_disk = sum(len(json.loads(path.read_text(encoding="utf-8"))["cases"]) for path in FILES)

    assert FILES
    assert len(CASES) == on_disk
    assert len({case.id for case in CASES}) == on_disk
