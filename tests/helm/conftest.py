"""What Helm makes of the chart, asked once for all tests."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.helm.values_matrix import CASES, REFUSED

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "tenure"
KUBE_VERSIONS = ["1.29", "1.33", "1.37"]


def helm_python() -> Path:
    """Return the interpreter that has Helm; skip when nobody prepared one."""
    named = os.environ.get("TENURE_HELM_PYTHON")
    if not named:
        pytest.skip("`make helm-check` prepares Helm and runs this")
    assert Path(named).exists(), f"TENURE_HELM_PYTHON names {named}, which is not there"
    return Path(named)


def look(cases: dict[str, Any]) -> dict[str, Any]:
    """Return what the chart becomes with each of the values."""
    asked = {"chart": str(CHART), "kube_versions": KUBE_VERSIONS, "cases": cases}
    done = subprocess.run(
        [helm_python(), Path(__file__).with_name("render_chart.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["cases"]
    return found


@pytest.fixture(scope="session")
def rendered() -> dict[str, Any]:
    """Return the chart with the values of each case."""
    return look(CASES)


@pytest.fixture(scope="session")
def refused() -> dict[str, Any]:
    """Return the chart with values that it must refuse."""
    return look({name: values for name, (values, _) in REFUSED.items()})
