"""Which check asserts which property for whole states and sequences.

Each check runs the case's situation under the new system's settings, varies what the property is
about (a second source, work in flight, the reason for a sleep, a refusal ...), and asserts the
property itself. None looks at a case's id or at a particular expectation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.conformance import autoscaler_master_checks as master
from tests.conformance import autoscaler_provider_checks as provider
from tests.conformance import autoscaler_safety_checks as safety
from tests.conformance import autoscaler_scaling_checks as scaling
from tests.conformance.autoscaler_case import Case
from tests.conformance.autoscaler_scene import Scene

CHECKS: Mapping[str, Callable[[Scene], None]] = {
    "P01": safety.p01,
    "P02": safety.p02,
    "P03": safety.p03,
    "P04": safety.p04,
    "P05": safety.p05,
    "P06": safety.p06,
    "P08": safety.p08,
    "P09": safety.p09,
    "P10": scaling.p10,
    "P11": scaling.p11,
    "P12": scaling.p12,
    "P13": scaling.p13,
    "P14": scaling.p14,
    "P15": scaling.p15,
    "P16": scaling.p16,
    "P17": provider.p17,
    "P18": provider.p18,
    "P19": provider.p19,
    "P20": master.p20,
    "P21": master.p21,
    "P22": safety.p22,
    "P23": safety.p23,
    "P24": safety.p24,
    "P25": scaling.p25,
    "P27": safety.p27,
    "P28": scaling.p28,
    "P29": scaling.p29,
    "P30": safety.p30,
}


def check(case: Case) -> None:
    """Assert every property that the case names."""
    assert case.properties, case.required
    scene = Scene(case)
    for name in case.properties:
        assert name in CHECKS, f"{case.id}: no check of {name} for a {case.kind}"
        CHECKS[name](scene)
