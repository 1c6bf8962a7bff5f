"""Settings are read whole or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure_agent.capacity import attributes, capacity
from tenure_agent.settings import AgentSettings, SettingRefused

LEAST = {"TENURE_REGISTRY_ADDRESS": "127.0.0.1:7004", "TENURE_DATA_DIR": "/data"}


def test_the_least_that_must_be_said(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("tnr_n1_secret\n")
    given = {**LEAST, "TENURE_AGENT_ID": "n1", "TENURE_KEY_FILE": str(key)}

    assert AgentSettings.load(given) == AgentSettings(
        agent_id="n1",
        registry_address="127.0.0.1:7004",
        api_key="tnr_n1_secret",
        data_dir=Path("/data"),
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "TENURE_REGISTRY_ADDRESS"),
        ({**LEAST, "TENURE_AGENT_ID": "../x"}, "TENURE_AGENT_ID"),
        ({**LEAST, "TENURE_ON_STOP": "maybe"}, "TENURE_ON_STOP"),
        ({**LEAST, "TENURE_OUTPUT_BYTES_MAX": "-1"}, "TENURE_OUTPUT_BYTES_MAX"),
        ({**LEAST, "TENURE_LIMITS": "some"}, "TENURE_LIMITS"),
        ({**LEAST, "TENURE_PRIVATE_TMP": "maybe"}, "TENURE_PRIVATE_TMP"),
        ({**LEAST, "TENURE_PIDS_MAX": "0"}, "TENURE_PIDS_MAX"),
        ({**LEAST, "TENURE_KEY_FILE": "/no/such/file"}, "TENURE_KEY_FILE"),
    ],
)
def test_what_makes_no_sense_is_named(given: dict[str, str], named: str) -> None:
    with pytest.raises(SettingRefused, match=named):
        AgentSettings.load(given)


def test_the_operators_word_replaces_what_is_detected_kind_by_kind() -> None:
    detected = capacity("")
    told = capacity("cpu=1500m,gpu=2")

    assert detected["cpu"] >= 1_000
    assert detected["memory"] > 2**20
    assert dict(told) == {**detected, "cpu": 1_500, "gpu": 2_000}
    assert attributes("zone=a, ssd=yes")["zone"] == "a"
    with pytest.raises(ValueError, match="NAME=VALUE"):
        attributes("zone")
