"""`tenure config`: what a service would start with, where that comes from, and what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NEEDED = {
    "TENURE_DATABASE_DSN": "postgresql://me:hush@h/d",
    "TENURE_KEYRING_FILE": "/keys/ring.json",
}


def tenure(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tenure_cli", "config", *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHONWARNINGS": "error", **environment},
        capture_output=True,
        text=True,
    )


def shown(*arguments: str, **environment: str) -> dict[str, Any]:
    done = tenure("show", *arguments, "-o", "json", **environment)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_each_setting_says_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('loss_ms = 20000\nfence_ms = 9000\nlog_level = "debug"\n')
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "tenure_api_key").write_text("tnr_registry_0123456789")
    found = shown(
        "registry",
        **NEEDED,
        TENURE_SETTINGS_FILE=str(file),
        TENURE_SECRETS_DIR=str(secrets),
        TENURE_FENCE_MS="8000",
    )
    said = {name: (each["value"], each["origin"]) for name, each in found.items()}
    assert said["fence_ms"] == ("8000", "environment")
    assert said["loss_ms"] == ("20000", f"file {file}")
    assert said["log_level"] == ("debug", f"file {file}")
    assert said["heartbeat_period_ms"] == ("1000", "default")
    assert said["api_key"] == ("[hidden]", f"secrets folder {secrets}")
    assert said["database_dsn"] == ("[hidden]", "environment")
    assert found["fence_ms"]["variable"] == "TENURE_FENCE_MS"


def test_only_what_was_set_is_shown_on_wish() -> None:
    assert set(shown("slottable", "--set", **NEEDED)) == {"database_dsn", "keyring_file"}


def test_an_agents_settings_are_shown_too() -> None:
    found = shown(
        "agent",
        "--set",
        TENURE_REGISTRY_ADDRESS="127.0.0.1:1",
        TENURE_DATA_DIR="/data",
        TENURE_API_KEY="tnr_agent-1_0123",
    )
    assert {name: each["value"] for name, each in found.items()} == {
        "registry_address": "127.0.0.1:1",
        "data_dir": "/data",
        "api_key": "[hidden]",
    }


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({**NEEDED, "TENURE_LOSS_MS": "many"}, "loss_ms (TENURE_LOSS_MS): Input should be"),
        ({**NEEDED, "TENURE_LOSS_MS": "5000"}, "settings: Value error"),
        ({**NEEDED, "TENURE_LOSSMS": "5000"}, "did you mean TENURE_LOSS_MS?"),
        ({}, "database_dsn (TENURE_DATABASE_DSN): Field required"),
        ({**NEEDED, "TENURE_SETTINGS_FILE": "/none.toml"}, "/none.toml, which is no file"),
    ],
)
def test_what_would_keep_a_service_from_starting_is_said(
    environment: dict[str, str], problem: str
) -> None:
    done = tenure("check", "registry", **environment)
    assert done.returncode == 4
    assert done.stdout.startswith("registry:\n")
    assert problem in done.stdout
    assert "hush" not in done.stdout + done.stderr
    refused = tenure("show", "registry", **environment)
    assert (refused.returncode, problem in refused.stderr) == (4, True)


def test_unknown_keys_of_the_file_are_all_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("los_ms = 1\nfense_ms = 2\n")
    done = tenure("check", "registry", **NEEDED, TENURE_SETTINGS_FILE=str(file))
    assert done.returncode == 4
    assert "los_ms" in done.stdout
    assert "fense_ms" in done.stdout


def test_services_that_would_start_are_said_to() -> None:
    done = tenure("check", "registry", "slottable", **NEEDED)
    assert (done.returncode, done.stdout) == (0, "registry: starts\nslottable: starts\n")
