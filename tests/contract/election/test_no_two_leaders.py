"""At no instant do two processes believe that they lead, whatever is stopped or killed.

Rivals in processes of their own log each moment at which `valid` said yes, by a clock that they
share. Rivals are stopped for longer than the time to live, killed and started anew; the store is
killed and brought back. The checker needs nobody's word: a later leader's first yes lies wholly
before an earlier leader's yes, or it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import pytest
from tests.contract.election.stores import TTL_S, LastingStore

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

SCOPE = "pool/gpu"
BREAKS = 8
LEADERS = 5
SECONDS_MAX = 120.0


class Rivals:
    """Three processes that run for the same scope, and what they logged."""

    def __init__(self, store: LastingStore, log: IO[str]) -> None:
        self._store = store
        self._log = log
        self._started = 0
        self._processes = [self._start() for _ in range(3)]

    def _start(self) -> subprocess.Popen[str]:
        self._started += 1
        command = self._store.rival_command(SCOPE, self._started)
        return subprocess.Popen(command, stdout=self._log, stderr=subprocess.DEVNULL, text=True)

    def replace(self, index: int) -> None:
        self._end(self._processes[index])
        self._processes[index] = self._start()

    async def pause(self, index: int, seconds: float) -> None:
        process = self._processes[index]
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for process in self._processes:
            self._end(process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()


def overlaps(lines: Iterable[str]) -> tuple[list[str], int]:
    """Return the pairs that believed at once, and the number of leaders there were."""
    yes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for line in lines:
        words = line.split()
        if len(words) == 3:  # A killed process may leave half a line.
            with contextlib.suppress(ValueError):
                yes[int(words[0])].append((int(words[1]), int(words[2])))
    found: list[str] = []
    for earlier in sorted(yes):
        still_ms = max(before for before, _ in yes[earlier])
        for later in yes:
            began_ms = min(after for _, after in yes[later])
            if later > earlier and still_ms > began_ms:
                found.append(f"{earlier} at {still_ms} although {later} since {began_ms}")
    return found, len(yes)


async def test_rivals_never_lead_at_once_while_all_sorts_of_things_break(
    lasting_store: LastingStore, tmp_path: Path
) -> None:
    seed = int(os.environ.get("TENURE_SEED", "20261130"))
    print("seed", seed)
    rng = random.Random(seed)
    path = tmp_path / "beliefs"
    with path.open("a") as log:
        rivals = Rivals(lasting_store, log)
        try:
            async with asyncio.timeout(SECONDS_MAX):
                for done in itertools.count(1):
                    await asyncio.sleep(rng.uniform(0.2, 1.5))
                    await _break_something(rng, rivals, lasting_store)
                    found, leaders = overlaps(path.read_text().splitlines())
                    if found or (done >= BREAKS and leaders >= LEADERS):
                        break
        finally:
            rivals.end()
    found, leaders = overlaps(path.read_text().splitlines())
    print("leaders", leaders)
    assert found == []


async def _break_something(rng: random.Random, rivals: Rivals, store: LastingStore) -> None:
    match rng.choice(["pause", "pause", "pause", "replace", "store"]):
        case "pause":
            await rivals.pause(rng.randrange(3), rng.uniform(0.1, 2 * TTL_S))
        case "replace":
            rivals.replace(rng.randrange(3))
        case _:
            await store.kill()
            await asyncio.sleep(rng.uniform(0, TTL_S))
            await store.come_back()


def test_the_checker_finds_an_overlap() -> None:
    assert overlaps(["1 10 10", "1 20 20", "2 21 21"]) == ([], 2)
    assert overlaps(["1 10 10", "2 15 15", "1 20 20"]) == (["1 at 20 although 2 since 15"], 2)
