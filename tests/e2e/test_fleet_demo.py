"""`tenure demo --autoscale` as people run it: it plays a minute, checks itself and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_demo_of_the_autoscaler_finds_nothing_wrong(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tenure_cli", "demo", "--autoscale", "-o", "json")
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert [check for check in told["checks"] if check["wrong"]] == []
    assert {kind["kind"]: kind["done"] for kind in told["kinds"]} == {
        "best effort": 4, "advance": 1,
    }  # fmt: skip
    assert "machine-1" in (tmp_path / "gantt.svg").read_text()
