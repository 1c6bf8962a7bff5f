"""The work of a demo lease: computes something and writes a result. Needs nothing but Python.

    python work.py SEED ROUNDS SECONDS FOLDER

Each round hashes a chain of STEPS links and then rests, so that all rounds together take about
SECONDS of running time. The result is written in one step, so that it is whole or not there.
"""

import hashlib
import json
import os
import sys
import time

STEPS = 2_000


def digest(seed: str, rounds: int, rest_s: float = 0.0) -> str:
    """Return the last link of the chain that begins with the seed."""
    link = seed.encode()
    for _ in range(rounds):
        for _ in range(STEPS):
            link = hashlib.sha256(link).digest()
        if rest_s:
            time.sleep(rest_s)
    return link.hex()


def main() -> int:
    """Compute and write; the slot's own number is part of its seed."""
    seed, rounds, seconds, folder = sys.argv[1:]
    rank = os.environ["TENURE_RANK"]
    began = time.time_ns()  # a work's own note, no decision
    result = {
        "lease": os.environ["TENURE_LEASE"],
        "attempt": int(os.environ["TENURE_ATTEMPT"]),
        "rank": int(rank),
        "digest": digest(f"{seed}.{rank}", int(rounds), float(seconds) / int(rounds)),
        "pid": os.getpid(),
        "began_ns": began,
    }
    path = os.path.join(folder, f"{result['lease']}.{rank}.json")
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(result, file)
    os.replace(f"{path}.part", path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
