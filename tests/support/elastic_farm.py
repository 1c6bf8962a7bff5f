"""An elastic group's surroundings in memory: its applications do as they are told, at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.support.fleet_world import GROUP, FleetWorld

from tenure_autoscaler.elastic_acting import ElasticActor
from tenure_autoscaler.providers.port import Capabilities
from tenure_autoscaler.values import ElasticPolicy, Group, GroupKind
from tenure_core.autoscaling.machines import ApplicationState

POLICY = ElasticPolicy("serve", in_window_ms=20_000, in_cooldown_ms=20_000)
ELASTIC = replace(GROUP, kind=GroupKind.ELASTIC, size_min=1, size_max=3, elastic=POLICY)
CAN = Capabilities(suspends=True)
RUNNING, READY = ApplicationState.RUNNING, ApplicationState.READY


class Farm(FleetWorld):
    """A world whose machines run an application that does as it is told, at once."""

    def __init__(self, group: Group = ELASTIC) -> None:
        super().__init__(group, capabilities=CAN)
        self.waiting_jobs = 0
        self.job_ms = 0
        self.master_goes_in = 0
        self.silent: set[str] = set()
        self.acting: ElasticActor | None = None

    async def tick(self, count: int = 1, period_ms: int = 2_000) -> None:
        """Let applications speak and the leader act, so many times."""
        if self.acting is None:
            self.acting = await self.leader()
        for _ in range(count):
            self.clock.now += period_ms
            self.speak()
            await self.acting.run_once()

    async def leader(self) -> ElasticActor:
        """Return a new leader."""
        actor = await self.actor()
        assert isinstance(actor, ElasticActor)
        return actor

    def speak(self) -> None:
        """Have every application that is awake say how it is."""
        self.provider.advance()
        for provider_id, spec in self.provider.machines.items():
            known = (self.sights or {}).get(spec.machine)
            if provider_id in self.provider.asleep or known is None or spec.machine in self.silent:
                continue
            order = self.told.get(spec.machine)
            ours = order is not None and order.incarnation == known.incarnation
            facts: dict[str, Any] = {"in_flight": 0, "threads": 2, "mean_job_ms": self.job_ms}
            if ours and order is not None and order.start and order.is_master:
                facts = {"queue_length": self.waiting_jobs, "address": f"at-{spec.machine}"}
                facts["master_epoch"] = order.master_epoch
            started = ours and order is not None and order.start
            self.says(spec.machine, RUNNING if started else READY, **facts)

    async def roles(self) -> dict[str, str]:
        """Return role and state of each machine that is live."""
        return {r.machine: f"{r.role} {r.state.value}" for r in await self.records() if r.live}

    async def rules(self) -> list[str]:
        """Return the rules of all decisions, oldest first."""
        return [decision.rule for decision in reversed(await self.decisions())]

    def masters(self) -> list[str]:
        """Return the machines whose applications serve as master now."""
        here = {spec.machine: known for known, spec in self.provider.machines.items()}
        return sorted(
            name
            for name, order in self.told.items()
            if name in here and order.start and order.is_master
        )
