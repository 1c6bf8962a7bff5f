"""The control plane under faults: seeds that failed once, others, and hundreds in the slow suite.

The others are the same each time, so that what lands is not a matter of luck; TENURE_EXPLORE=1 runs
seeds that nobody has seen, by the clock, and TENURE_SIM_SEED begins at a certain one.
`make sim SEED=… STEPS=…` shows the transcript of one. A seed that fails belongs into `seeds.txt`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import pytest
from tests.simulation.run import STEPS, simulate

KEPT: Final = tuple(
    int(line.split()[0])
    for line in Path(__file__).with_name("seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
FEW: Final = 24
FIRST: Final = 20_261_201_000
MANY: Final = 500
LINES_SHOWN: Final = 60


def _first() -> int:
    if given := os.environ.get("TENURE_SIM_SEED"):
        return int(given)
    if os.environ.get("TENURE_EXPLORE"):
        return time.time_ns() // 1_000_000_000 % 100_000_000 * 1_000
    return FIRST


def _run(seed: int) -> int:
    """Run one seed, its number printed first; return its steps, or fail with its last lines."""
    print(f"seed {seed}", flush=True)
    outcome = simulate(seed)
    if outcome.error is not None:
        print("\n".join(outcome.lines[-LINES_SHOWN:]))
        command = f"make sim SEED={seed} STEPS={STEPS}"
        raise AssertionError(f"{outcome.error}; see `{command}`") from outcome.error
    return outcome.steps


@pytest.mark.parametrize("seed", KEPT)
def test_a_seed_that_failed_once_keeps_all_promises(seed: int) -> None:
    _run(seed)


@pytest.mark.timeout(900)
def test_two_dozen_seeds_keep_all_promises() -> None:
    first = _first()
    for seed in range(first, first + FEW):
        _run(seed)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_hundreds_of_seeds_keep_all_promises() -> None:
    first, steps, failed = _first(), 0, {}
    began = time.perf_counter()
    for seed in range(first, first + MANY):
        try:
            steps += _run(seed)
        except AssertionError as error:
            failed[seed] = str(error)
    took_s = time.perf_counter() - began
    print(f"{MANY} seeds from {first}: {steps} steps in {took_s:.0f} s")
    assert not failed, failed
