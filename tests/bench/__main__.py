"""Runs every bench of this folder, one after another: `python -m tests.bench [NAME …]`.

Each prints its figures with their size and, where there is one, a baseline from the same run. They
mean something on a quiet machine only; the load is printed before each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> int:
    """Run the benches named, or all; return 1 when one of them failed."""
    known = {path.stem.removeprefix("bench_"): path for path in sorted(FOLDER.glob("bench_*.py"))}
    wanted = sys.argv[1:] or list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"no bench {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name in wanted:
        print(f"\n== {name} (load {os.getloadavg()[0]:.1f}) ==", flush=True)
        module = f"tests.bench.{known[name].stem}"
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
