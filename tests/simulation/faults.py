"""What goes wrong in a run: drawn from the seed, done while it lasts, undone for the peace."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tests.simulation.cluster import Cluster, Plan
from tests.simulation.world import QUIET, Rates

from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Policies
from tenure_core.policies.preemption import BookedPreemptBestEffort, NoPreemption

KINDS: Final = (
    "crash",
    "pause",
    "partition",
    "reboot",
    "wipe",
    "clock",
    "etcd",
    "silence",
)


@dataclass(frozen=True, slots=True)
class Profile:
    """One world and its troubles."""

    plan: Plan
    rates: Rates = QUIET
    kinds: tuple[str, ...] = ()
    every_s: float = 5.0
    leases: int = 12


def draw(rng: random.Random) -> Profile:
    """Return the profile of a seed: one in eight has no faults at all."""
    policies = Policies(
        backfilling=rng.choice((Backfilling.OFF, Backfilling.EASY, Backfilling.CONSERVATIVE)),
        preemption=rng.choice(
            (
                BookedPreemptBestEffort(),
                BookedPreemptBestEffort(),
                BookedPreemptBestEffort(suspends=False),
                NoPreemption(),
            )
        ),
    )
    # Of its own: what else a seed draws is as it was before there were several.
    registries = random.Random(rng.getstate()[1][0]).choice((1, 1, 2))
    plan = Plan(
        registries=registries,
        agents=rng.choice((1, 2, 2, 3)),
        schedulers=rng.choice((1, 2, 2, 3)),
        admissions=rng.choice((1, 2)),
        slottables=rng.choice((1, 2)),
        policies=policies,
        skew_ms=rng.choice((0, 0, 200, 3_600_000)),
    )
    if rng.random() < 0.125:
        return Profile(plan)
    harsh = rng.choice((0.2, 1.0, 1.0, 3.0))
    rates = Rates(
        lose_request=0.004 * harsh,
        lose_answer=0.006 * harsh,
        repeat_request=0.01 * harsh,
        slow=0.01 * harsh,
        break_stream=0.001 * harsh,
        database=0.003 * harsh,
        doom=rng.choice((0.0, 0.001, 0.002)) * harsh,
    )
    kinds = tuple(kind for kind in KINDS if rng.random() < 0.4)
    every_s = rng.choice((2.0, 5.0, 10.0))
    if plan.schedulers > 1 and rng.random() < 0.3:
        kinds = (*kinds, "depose")
    return Profile(plan, rates, kinds, every_s=every_s)


class Nemesis:
    """Does harm at random until peace is made."""

    def __init__(self, cluster: Cluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile
        self._world = cluster.world
        self._rng = cluster.world.rng("nemesis")
        self._undo: dict[Callable[[], None], None] = {}
        self.did_harm = False

    async def live(self) -> None:
        """Do one thing after another."""
        profile = self._profile
        if profile.rates != QUIET:
            self.did_harm = True
            self._world.rates = profile.rates
        while profile.kinds:
            await asyncio.sleep(self._rng.expovariate(1 / profile.every_s))
            self.did_harm = True
            kind = self._rng.choice(profile.kinds)
            harms: dict[str, Callable[[], Awaitable[None]]] = {
                "crash": self._crash,
                "pause": self._pause,
                "partition": self._partition,
                "reboot": self._reboot,
                "wipe": self._wipe,
                "clock": self._clock,
                "etcd": self._etcd,
                "silence": self._silence,
                "depose": self._depose,
            }
            self._world.step()
            await harms[kind]()

    async def make_peace(self, harm: asyncio.Task[None]) -> None:
        """Stop, and undo what can be undone."""
        harm.cancel()
        await asyncio.gather(harm, return_exceptions=True)
        for undo in list(self._undo):
            undo()
        self._undo.clear()

    def _for_a_while(self, span_s: tuple[float, float], undo: Callable[[], None]) -> float:
        self._undo[undo] = None

        def over() -> None:
            if undo in self._undo:
                del self._undo[undo]
                undo()

        wait_s = self._rng.uniform(*span_s)
        self._world.loop.call_later(wait_s, over)
        return wait_s

    def _running(self) -> list[str]:
        hosts = self._cluster.hosts
        return [n for n, h in hosts.items() if h.runs and not h.process.paused]  # type: ignore[union-attr]

    async def _crash(self) -> None:
        names = self._running()
        if names:
            name = self._rng.choice(names)
            self._world.say(f"KILL       {name}")
            self._cluster.hosts[name].process.kill()  # type: ignore[union-attr]

    async def _pause(self) -> None:
        names = self._running()
        if not names:
            return
        name = self._rng.choice(names)
        process = self._cluster.hosts[name].process
        assert process is not None

        def go_on() -> None:
            if process.alive and process.paused:
                self._world.say(f"CONTINUE   {name}")
                process.resume()

        process.pause()
        lasts_s = self._for_a_while((0.05, 12.0), go_on)
        self._world.say(f"PAUSE      {name} for {lasts_s:.3f} s")

    async def _partition(self) -> None:
        names = [*self._cluster.hosts, self._cluster.etcd.host]
        count = self._rng.randint(1, max(1, len(names) // 2))
        some = set(self._rng.sample(names, count))
        links = [(a, b) for a in names if a in some for b in names if b not in some]
        self._cut(links, (0.2, 15.0), f"{sorted(some)} from the rest")

    async def _silence(self) -> None:
        """Cut one link only."""
        names = [*self._cluster.hosts, self._cluster.etcd.host]
        one, other = self._rng.sample(names, 2)
        self._cut([(one, other)], (0.2, 20.0), f"{one} from {other}")

    async def _depose(self) -> None:
        """Cut off whoever leads: what it sent while it still might arrives when another leads."""
        hosts = [name for name, leader in self._cluster.leaders.items() if leader.reign]
        for name in hosts[:1]:
            links = [(name, other) for other in self._cluster.hosts if other != name]
            links.append((name, self._cluster.etcd.host))
            self._cut(links, (3.5, 9.0), f"{name}, which leads, from the rest")

    async def _etcd(self) -> None:
        etcd = self._cluster.etcd.host
        links = [(etcd, name) for name in self._cluster.hosts]
        self._cut(links, (0.5, 12.0), "etcd from everyone")

    def _cut(self, links: list[tuple[str, str]], span_s: tuple[float, float], text: str) -> None:
        network = self._cluster.network
        for one, other in links:
            network.cut(one, other)

        def mend() -> None:
            self._world.say(f"MEND       {text}")
            for one, other in links:
                network.mend(one, other)

        lasts_s = self._for_a_while(span_s, mend)
        self._world.say(f"CUT        {text} for {lasts_s:.3f} s")

    async def _reboot(self) -> None:
        name = self._rng.choice(list(self._cluster.nodes))
        host = self._cluster.hosts[name]
        if host.runs:
            self._world.say(f"REBOOT     {name}")
            assert host.process is not None
            host.process.kill()
            self._cluster.nodes[name].reboot()

    async def _wipe(self) -> None:
        name = self._rng.choice(list(self._cluster.nodes))
        host = self._cluster.hosts[name]
        if host.runs:
            self._world.say(f"WIPE       {name}: it comes back with an empty disk")
            assert host.process is not None
            host.process.kill()
            self._cluster.nodes[name].reboot()
            self._cluster.nodes[name].wipe()

    async def _clock(self) -> None:
        """Step a host's wall clock by up to hours; nothing may depend on it."""
        host = self._cluster.hosts[self._rng.choice(list(self._cluster.hosts))]
        host.clock.wall_skew_ms = self._rng.choice((-7_200_000, -3_000, 0, 3_000, 7_200_000))
        self._world.say(f"CLOCK      {host.name} is {host.clock.wall_skew_ms} ms off")
