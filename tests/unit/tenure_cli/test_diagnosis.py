"""What the doctor says, from facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenure.registry.v1 import agent_pb2 as apb
from tenure_cli.certificates import CertificateFacts
from tenure_cli.diagnosis import Facts, Level, diagnose

HOUR = 3_600_000
ALIVE, LOST = apb.Agent.STATE_ALIVE, apb.Agent.STATE_LOST


def an_agent(name: str = "a1", state: Any = ALIVE, **fields: Any) -> apb.Agent:
    given = {"pool": "default", "version": "0.1.0", **fields}
    return apb.Agent(name=f"agents/{name}", state=state, **given)


def a_service(name: str, **fields: str) -> dict[str, str]:
    return {
        "service": name,
        "address": f"{name}:1",
        "state": "serving",
        "version": "0.1.0",
        **fields,
    }


def a_certificate(**fields: Any) -> CertificateFacts:
    well = CertificateFacts("/data/tls/ada.crt", True, True, True, 20 * HOUR, 24 * HOUR)
    return replace(well, **fields)


WELL = Facts(
    "0.1.0",
    services=[a_service("admission"), a_service("registry")],
    agents=[an_agent()],
    pools={"default": "scheduler-1"},
    apart_ms=20,
    over_commits=0,
    drifts=0,
    folder=Path("/data"),
    modes={"keys/operator.key": 0o100600},
    certificates=[a_certificate()],
)


def said(facts: Facts) -> list[str]:
    return [
        f"{each.level.value}: {each.message}"
        for each in diagnose(facts)
        if each.level is not Level.OK
    ]


def test_all_is_well_and_what_was_looked_at_shows() -> None:
    found = diagnose(WELL)

    assert said(WELL) == []
    assert {each.check for each in found} == {
        "services",
        "versions",
        "clocks",
        "pools",
        "agents",
        "sums",
        "files",
        "certificates",
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"services": [a_service("admission", state="away", reason="UNAVAILABLE", version="")]},
            ["problem: admission at admission:1 does not answer (UNAVAILABLE)."],
        ),
        (
            {"services": [a_service("admission", version="0.2.0")]},
            [
                "warning: Several versions run: 0.1.0: agent a1, this program; 0.2.0: admission.",
            ],
        ),
        (
            {"apart_ms": -7_200_000},
            ["warning: This machine's clock is 7200.0 s behind the services'."],
        ),
        ({"pools": {"default": ""}}, ["problem: Nobody leads pool default."]),
        ({"pools": {"other": "s1"}}, ["warning: Pool other has no agents."]),
        (
            {"agents": [an_agent(cordoned=True)]},
            [
                "warning: None of the 1 agents of pool default takes anything new.",
                "warning: Cordoned or draining: a1.",
            ],
        ),
        (
            {"agents": [an_agent(), *(an_agent(f"b{n:02}", LOST) for n in range(12))]},
            [
                "warning: Lost: b00, b01, b02, b03, b04, b05, b06, b07, b08, b09 and 2 more.",
            ],
        ),
        ({"over_commits": 3}, ["problem: More is held than there is, in 3 spans."]),
        ({"drifts": 1}, ["problem: The ledger of usage is off for 1 accounts."]),
        (
            {"modes": {"keys/operator.key": 0o100644}},
            ["problem: Others may read /data/keys/operator.key."],
        ),
        (
            {"certificates": [a_certificate(), a_certificate(left_ms=3 * HOUR)]},
            ["warning: /data/tls/ada.crt ends in 3.0 h and was not renewed in time."],
        ),
        (
            {"certificates": [a_certificate(left_ms=-72 * HOUR)]},
            ["problem: /data/tls/ada.crt ended 3 days ago."],
        ),
        (
            {"certificates": [a_certificate(trusted=False)]},
            ["problem: /data/tls/ada.crt is of an authority that is not trusted here."],
        ),
        (
            {"certificates": [a_certificate(fits_key=False)]},
            ["problem: /data/tls/ada.crt and its key do not belong together."],
        ),
        (
            {"certificates": [CertificateFacts("/data/tls/ada.crt")]},
            ["problem: /data/tls/ada.crt cannot be read, or holds no certificate."],
        ),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], expected: list[str]) -> None:
    facts = replace(WELL, **changes)

    assert said(facts) == expected
    assert all(each.advice for each in diagnose(facts) if each.level is not Level.OK)


def test_what_could_not_be_asked_is_left_out() -> None:
    away = [a_service("admission", state="away", reason="UNAVAILABLE", version="")]

    assert said(Facts("0.1.0", services=away)) == [
        "problem: admission at admission:1 does not answer (UNAVAILABLE)."
    ]
