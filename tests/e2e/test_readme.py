"""The README's commands do what it says: each block of shell is run, or says why it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^\n]*?) -->\n)?```sh\n(?P<text>.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Return the mark and the text of each shell block."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return [(found["mark"] or "", found["text"]) for found in BLOCK.finditer(readme)]


def test_every_block_is_run_or_says_why_not() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert len(blocks()) == readme.count("```sh\n") > 0
    for mark, text in blocks():
        assert re.fullmatch(r"tested: suite|not run here: .{10,}", mark), text


def test_commands_that_are_not_run_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for mark, text in blocks():
        if mark.startswith("not run"):
            for line in text.splitlines():
                program, target = line.split()
                assert program == "make"
                assert f"\n{target}:" in makefile, line


@pytest.mark.slow
@pytest.mark.postgres
@pytest.mark.timeout(400)
def test_the_readmes_commands_work_as_they_stand(tmp_path: Path) -> None:
    """Wherever one fails, the README promises what is not so."""
    data = tmp_path / "data"
    environment = {
        **os.environ,
        "TENURE_DATA": str(data),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    said = ""
    try:
        for mark, text in blocks():
            if mark != "tested: suite":
                continue
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                env=environment,
                cwd=tmp_path,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=180,
            )
            assert ran.returncode == 0, f"{text}\n{ran.stdout}\n{ran.stderr}"
            said += ran.stdout
    finally:
        subprocess.run(
            ["tenure", "down"], env=environment, capture_output=True, timeout=60, check=False
        )
    for expected in ("slot 1 of 2 on agent-", "on time", "led by scheduler-1", " is gone."):
        assert expected in said, said
    assert not data.exists()
