"""A candidate that runs for a scope again and again, in a process of its own, and logs its belief.

Each line is `TOKEN BEFORE AFTER`: `valid` said yes at an instant between the two milliseconds, by a
clock that all processes of the machine share and that counts suspended time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

import structlog
from tests.contract.election.stores import elector_of

from tenure_runtime.clocks import BootClock


async def main(how: dict[str, str]) -> None:
    clock, rng = BootClock(), random.Random(int(how["seed"]))
    elector = elector_of(how)
    while True:
        leadership = await elector.campaign(how["scope"], str(how["seed"]))
        give_back_ms = clock.now_ms() + rng.randrange(500, 6_000)
        while not leadership.lost.is_set():
            # First of all: what it believes right after a pause is what this is about.
            before_ms = clock.now_ms()
            if leadership.valid():
                print(leadership.token, before_ms, clock.now_ms(), flush=True)
            if clock.now_ms() > give_back_ms:
                break
            await asyncio.sleep(0.002)
        await leadership.resign()


structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
asyncio.run(main(json.loads(sys.argv[1])))
