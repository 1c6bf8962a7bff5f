"""`python -m tests.simulation --seed N --steps N`: run one seed and print its transcript."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.run import STEPS, simulate


def main() -> int:
    """Run what the arguments say; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which run (default 1)")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps with faults")
    parser.add_argument("--seeds", type=int, default=1, help="so many seeds from --seed on")
    parser.add_argument(
        "--quiet", action="store_true", help="print the transcripts of failures only"
    )
    given = parser.parse_args()
    bad = []
    for seed in range(given.seed, given.seed + given.seeds):
        print(f"seed {seed}", flush=True)
        began = time.perf_counter()
        outcome = simulate(seed, given.steps)
        if not given.quiet or outcome.error is not None:
            sys.stdout.write(outcome.transcript)
        print(
            f"seed {seed}: {outcome.steps} steps in {outcome.virtual_s:.1f} virtual s "
            f"({time.perf_counter() - began:.2f} s), {outcome.leases} leases, "
            f"{outcome.works} runs of work: {outcome.error or 'all promises kept'}",
            flush=True,
        )
        if outcome.error is not None:
            bad.append(seed)
    if bad:
        print(f"failed: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
