"""The autoscaler against the outside cases: the ancestor where it is right, else the property.

A case without `required_of_new_system` asserts the ancestor's whole outcome. One with it asserts
by rule what the property demands; the property chooses the check, never the case's id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest
from tests.conformance import autoscaler_exact as exact
from tests.conformance import autoscaler_exact_single as exact_single
from tests.conformance import autoscaler_properties as whole
from tests.conformance import autoscaler_single as single
from tests.conformance.autoscaler_case import KINDS, REJECTED, Case, read_cases, settings
from tests.support.outside import cases

from tenure_core.errors import Invalid

FOLDER = cases("autoscaler")
CASES = read_cases(FOLDER)
EXACT: Mapping[str, Callable[[Case], None]] = {
    "vm_decision": exact_single.vm_decision,
    "tick": exact.tick,
    "heartbeat_merge": exact_single.heartbeat_merge,
    "bootstrap": exact_single.bootstrap,
    "command_log": exact_single.command_log,
    "sequence": exact.sequence,
    "future_node": exact_single.future_node,
}
BY_PROPERTY: Mapping[str, Callable[[Case], None]] = {
    **dict.fromkeys(("tick", "sequence"), whole.check),
    **dict.fromkeys(("vm_decision", "command_log", "bootstrap", "heartbeat_merge"), single.check),
}


def test_every_case_on_disk_is_run() -> None:
    """Whatever is on disk is a case below, under an id of its own, of a kind with an adapter."""
    on_disk = sum(len(json.loads(path.read_text())["cases"]) for path in FOLDER.glob("*.json"))

    assert len(CASES) == on_disk
    assert len({case.id for case in CASES}) == on_disk
    assert set(EXACT) == KINDS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    """The decision is the ancestor's, or obeys the property by which we differ."""
    if not case.required:
        EXACT[case.kind](case)
    elif case.required == REJECTED:
        with pytest.raises(Invalid):
            settings(case.config).checked()
    else:
        BY_PROPERTY[case.kind](case)
