"""`tenure completion`: a shell that reads it completes commands and options."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TENURE = Path(sys.executable).parent / "tenure"


def completed_by_bash(line: str) -> list[str]:
    """Return what bash offers for a line that is being typed."""
    words = line.split(" ")
    script = f"""
        set -e
        eval "$(tenure completion bash)"
        COMP_WORDS=({line.rstrip()}{' ""' if not words[-1] else ""})
        COMP_CWORD={len(words) - 1}
        _tenure_completion tenure
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    bash = shutil.which("bash")
    assert bash is not None
    environment = {"PATH": f"{TENURE.parent}:/usr/bin:/bin"}
    done = subprocess.run([bash, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands() -> None:
    assert completed_by_bash("tenure sl") == ["slottable"]
    assert completed_by_bash("tenure que") == ["queue"]


def test_bash_completes_commands_of_commands_and_options() -> None:
    assert completed_by_bash("tenure lease expl") == ["explain"]
    assert completed_by_bash("tenure lease create --not") == ["--not-before", "--not-preemptible"]


@pytest.mark.parametrize(("shell", "says"), [("zsh", "#compdef tenure"), ("fish", "complete")])
def test_other_shells_get_their_own(shell: str, says: str) -> None:
    done = subprocess.run([TENURE, "completion", shell], capture_output=True, text=True, check=True)
    assert says in done.stdout
