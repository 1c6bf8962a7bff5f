"""One run: a seed, a number of steps with faults, then quiet until all has settled.

    python -m tests.simulation --seed 7 --steps 3000

prints the transcript. The same seed and number of steps give the same lines, byte for byte.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from unittest import mock

import structlog
from tests.simulation.checkers import Checkers
from tests.simulation.clients import Told, User, Watcher
from tests.simulation.cluster import Cluster, failures
from tests.simulation.faults import Nemesis, Profile, draw
from tests.simulation.world import EPOCH_MS, QUIET, World
from tests.support.virtual_loop import PROCESS, VirtualLoop, run_virtual

import tenure_agent.stream
from tenure_agent.capacity import Usage

STEPS: Final = 2_500
SETTLES_S: Final = 420.0
WATCHES_S: Final = 90.0
UNHEARD: Final = frozenset({"call.served", "call.failed"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    steps: int
    virtual_s: float
    leases: int
    works: int
    starts_checked: int
    lines: tuple[str, ...]
    error: BaseException | None

    @property
    def transcript(self) -> str:
        """Return all lines as one text."""
        return "\n".join(self.lines) + "\n"


class _NoUsage:
    """Stands for the meter of a real machine."""

    def look(self) -> Usage:
        return Usage(0, 0)


@contextmanager
def _logging_into(world: World) -> Iterator[None]:
    """Have what the code logs in the transcript, by process."""

    def write(_logger: object, _method: str, event: Any) -> Any:
        name = event.pop("event")
        error = event.pop("exc_info", None)
        if name not in UNHEARD or error is not None:
            facts = " ".join(f"{key}={value}" for key, value in sorted(event.items()))
            if error is not None:
                facts += f" {error!r}"
            if PROCESS.get() is None or PROCESS.get().alive:  # type: ignore[union-attr]
                world.say(f"log        {name} {facts}")
        if name in ("call.failed", "loop.failed") and not _expected(error):
            failures().append(error)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[write],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _expected(error: BaseException | None) -> bool:
    from tenure_core.errors import DomainError

    return isinstance(error, DomainError)


class Simulation:
    """A run in the making."""

    def __init__(self, seed: int, steps: int, profile: Profile | None = None) -> None:
        self.seed = seed
        self.steps_wanted = steps
        self.given = profile
        self.told = Told()
        self.checkers = Checkers(self.told)

    async def main(self) -> Outcome:
        """Live through the run and judge it."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        world = self.world = World(self.seed, loop)
        error: BaseException | None = None
        random.seed(self.seed)
        failures().clear()
        with _logging_into(world), mock.patch.object(tenure_agent.stream, "UsageMeter", _NoUsage):
            try:
                await self._live(world)
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise
            except BaseException as caught:
                error = caught
                world.say(f"FAILED     {type(caught).__name__}: {caught}")
            await self._end()
        return Outcome(
            self.seed,
            world.steps,
            loop.time() - 1_000.0,
            len(self.checkers.leases()),
            len(self.checkers.runs),
            self.checkers.starts_checked,
            tuple(world.lines),
            error,
        )

    async def _live(self, world: World) -> None:
        profile = self.profile = self.given or draw(world.rng("profile"))
        world.say(f"seed {self.seed}: {profile}")
        cluster = self.cluster = Cluster(world, profile.plan, self.checkers)
        broken: asyncio.Future[None] = world.loop.create_future()
        world.loop.set_exception_handler(_breaks(broken))
        world.loop.stepped = lambda: _look_for_failures(broken)
        cluster.build()
        self.checkers.attend(cluster)
        users = [User(cluster, name, self.told, profile.leases) for name in ("ann", "bob")]
        watcher = self.checkers.watcher = Watcher(cluster)
        following = [asyncio.create_task(watcher.follow(f)) for f in watcher.feeds.values()]
        living = [asyncio.create_task(user.live()) for user in users]
        nemesis = Nemesis(cluster, profile)
        self._all = [*following, *living]
        story = asyncio.create_task(self._story(world, nemesis, users, living))
        self._all.append(story)
        await asyncio.wait({story, broken, *following}, return_when=asyncio.FIRST_COMPLETED)
        for task in (story, *following):
            if task.done():
                task.result()
        if broken.done():
            broken.result()

    async def _story(
        self, world: World, nemesis: Nemesis, users: list[User], living: list[Any]
    ) -> None:
        since_ms = world.now_ms()
        await asyncio.sleep(1.0)
        harm = asyncio.create_task(nemesis.live())
        self._all.append(harm)
        while world.steps < self.steps_wanted:
            await asyncio.sleep(0.25)
        for user in users:
            user.busy = False
        await nemesis.make_peace(harm)
        world.rates = QUIET
        harmless_ms = world.now_ms() if nemesis.did_harm else since_ms
        world.say("peace      nothing goes wrong any more")
        await asyncio.gather(*living)
        begun_s = world.loop.time()
        while self.checkers.unsettled() and world.loop.time() < begun_s + SETTLES_S:
            await asyncio.sleep(1.0)
        settled_s = world.loop.time()
        await asyncio.sleep(1.0)
        while self.checkers.watches_behind() and world.loop.time() < settled_s + WATCHES_S:
            await asyncio.sleep(1.0)
        wall_ms = EPOCH_MS
        self.checkers.calm.append((wall_ms + harmless_ms, wall_ms + world.now_ms()))
        self.checkers.final()

    async def _end(self) -> None:
        """Let everything come to its end without effect, so that nothing is left open."""
        world = self.world
        world.hooks.clear()
        world.loop.stepped = None
        world.loop.set_exception_handler(lambda _loop, _context: None)
        for task in getattr(self, "_all", []):
            task.cancel()
        if hasattr(self, "cluster"):
            self.cluster.supervises = False
            for host in self.cluster.hosts.values():
                if host.process is not None:
                    host.process.kill()
        await asyncio.sleep(1.0)


def _breaks(broken: asyncio.Future[None]) -> Any:
    def handle(_loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception") or AssertionError(context["message"])
        if isinstance(error, asyncio.CancelledError):
            return
        if not broken.done():
            broken.set_exception(error)

    return handle


def _look_for_failures(broken: asyncio.Future[None]) -> None:
    if failures() and not broken.done():
        broken.set_exception(failures()[0])


def simulate(seed: int, steps: int = STEPS, profile: Profile | None = None) -> Outcome:
    """Run one seed to its end; what went wrong is in the outcome."""
    return run_virtual(Simulation(seed, steps, profile).main)
