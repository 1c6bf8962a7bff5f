"""A candidate in a process of its own: says when it has won, then what `valid` says, all the time.

Each line is `STATE MILLISECONDS`, by the clock that counts suspended time. The instant is read
*after* `valid` answered, so `valid T` proves only that it was so at or before T; the reader of the
lines allows for that by looking at whole pauses.
"""

from __future__ import annotations

import asyncio
import json
import sys

import structlog
from tests.contract.election.stores import elector_of

from tenure_runtime.clocks import BootClock


async def main(how: dict[str, str]) -> None:
    clock = BootClock()
    leadership = await elector_of(how).campaign(how["scope"], "other process")
    print("won", clock.now_ms(), flush=True)
    while True:
        before_ms = clock.now_ms()
        valid = leadership.valid()
        if valid and clock.now_ms() - before_ms > 100:
            continue  # Stopped between the two looks: this line would prove nothing.
        print("valid" if valid else "invalid", before_ms, flush=True)
        await asyncio.sleep(0.005)


structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
asyncio.run(main(json.loads(sys.argv[1])))
