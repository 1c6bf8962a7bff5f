"""The world of one run: its seed, its time, its transcript, and where faults come from.

Everything that happens outside of the code under test is a *step*: a message delivered, a
transaction, work that begins or ends, a fault. Each may be written down; the same seed gives the
same lines.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.support.virtual_loop import PROCESS, Process, VirtualLoop

EPOCH_MS: Final = 1_800_000_000_000
"""The wall clock of the database when the run begins."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How likely each thing goes wrong, while things go wrong at all. Chances are per message."""

    lose_request: float = 0.0
    lose_answer: float = 0.0
    repeat_request: float = 0.0
    slow: float = 0.0
    break_stream: float = 0.0
    database: float = 0.0
    doom: float = 0.0


QUIET: Final = Rates()


class World:
    """What all parts of a run share."""

    def __init__(self, seed: int, loop: VirtualLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.rates = QUIET
        self.lines: list[str] = []
        self.steps = 0
        self.hooks: list[Callable[[], None]] = []
        self.calm_since_ms = loop.now_ms()
        self._streams: dict[str, random.Random] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def rng(self, purpose: str) -> random.Random:
        """Return the generator of one purpose: more draws for one leave the others as they are."""
        if purpose not in self._streams:
            self._streams[purpose] = random.Random(f"{self.seed}/{purpose}")
        return self._streams[purpose]

    def chance(self, purpose: str, likelihood: float) -> bool:
        """Say whether something happens this time."""
        return likelihood > 0 and self.rng(purpose).random() < likelihood

    def now_ms(self) -> int:
        """Return the true time, which no process can read: milliseconds since the loop's zero."""
        return self.loop.now_ms()

    def step(self) -> None:
        """Count a step, and have everything looked at soon."""
        self.steps += 1
        for hook in self.hooks:
            hook()

    def say(self, text: str) -> None:
        """Write a line of the transcript."""
        process = PROCESS.get()
        who = process.name if process is not None else "-"
        at = self.now_ms() - 1_000_000
        self.lines.append(f"{at / 1_000:9.3f} {who:12} {text}")


@dataclass
class HostClock:
    """The clocks of one host, as code under test sees them."""

    world: World
    wall_skew_ms: int = 0
    boot_offset_ms: int = 0

    def now_ms(self) -> int:
        """Return the wall clock."""
        return EPOCH_MS + self.world.now_ms() + self.wall_skew_ms

    def boot(self) -> BootView:
        """Return the clock that counts since boot."""
        return BootView(self)


@dataclass(frozen=True)
class BootView:
    """Milliseconds since a host's boot."""

    clock: HostClock

    def now_ms(self) -> int:
        """Return milliseconds since boot."""
        return self.clock.world.now_ms() + self.clock.boot_offset_ms


@dataclass
class Host:
    """A machine: its clocks, and the process of each name that runs there now."""

    name: str
    clock: HostClock
    process: Process | None = None
    starts: int = 0
    start: Callable[[Process], None] | None = None
    facts: dict[str, object] = field(default_factory=dict)

    def begin(self) -> Process:
        """Start its program in a new process."""
        assert self.start is not None
        assert self.process is None or not self.process.alive
        self.starts += 1
        self.process = Process(self.name)
        self.start(self.process)
        return self.process

    @property
    def runs(self) -> bool:
        """Say whether its program runs."""
        return self.process is not None and self.process.alive
