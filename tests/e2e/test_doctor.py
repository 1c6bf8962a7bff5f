"""The doctor, on a suite that is well and on one that is not."""

from __future__ import annotations

import json

import pytest
from tests.support.cli import Cli, short_folder, up

pytestmark = pytest.mark.timeout(120)


def test_the_doctor_finds_what_is_amiss_and_says_what_to_do() -> None:
    with short_folder("doctor") as folder:
        data = folder / "data"
        with up(Cli(data), "--agents", "1", "--capacity", "cpu=2,memory=1Gi") as tenure:
            well = tenure.json("doctor")
            assert {each["level"] for each in well} == {"ok"}, well
            [agent] = tenure.json("agent", "list")
            tenure("agent", "cordon", agent["name"])
            cordoned = tenure("doctor").stdout
            assert "None of the 1 agents of pool default takes anything new." in cordoned
            assert "tenure agent uncordon" in cordoned
            (data / "keys" / "operator.key").chmod(0o644)
            readable = json.loads(tenure("doctor", "-o", "json", code=1).stdout)
            assert [f["check"] for f in readable if f["level"] == "problem"] == ["files"]
            (data / "keys" / "operator.key").chmod(0o600)
            tenure("down")
            down = tenure.json("doctor", code=1)
            assert [f["check"] for f in down if f["level"] == "problem"] == ["services"] * 5
