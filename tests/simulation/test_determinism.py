"""The same seed gives the same run, byte for byte, in another process and with other hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEEDS = (3, 14)


def _transcript(seed: int, hashes: str) -> str:
    code = (
        "import sys; from tests.simulation.run import simulate; "
        f"sys.stdout.write(simulate({seed}, 1_200).transcript)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hashes}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_a_seed_gives_the_same_transcript_byte_for_byte() -> None:
    for seed in SEEDS:
        first = _transcript(seed, "0")
        assert len(first.splitlines()) > 50
        assert _transcript(seed, "1") == first


def test_seeds_differ() -> None:
    one, other = (_transcript(seed, "0") for seed in SEEDS)
    assert one.splitlines()[5:] != other.splitlines()[5:]
