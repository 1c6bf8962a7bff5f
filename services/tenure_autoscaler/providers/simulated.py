"""A provider that exists only in memory, and fails in every way that real ones do. For tests.

Machines take time to be listed and to boot; a quota and stock-outs refuse; answers get lost after
their effect or before it; a listing may be incomplete. All by a seed or by script, never by
chance alone. What a machine is made of is up to `on_boot` and `on_end`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from tenure_autoscaler.providers.port import (
    Capabilities,
    MachineSpec,
    ProvidedMachine,
    ProviderListing,
    ProviderRefusedError,
)
from tenure_core.timebase import Clock, Millis


@dataclass(frozen=True, slots=True)
class Faults:
    """How often what goes wrong, in parts per million of calls, by the seed."""

    lost_answer_ppm: int = 0
    no_effect_ppm: int = 0
    refused_ppm: int = 0
    never_boots_ppm: int = 0
    incomplete_ppm: int = 0


class SimulatedProvider:
    """Keeps machines in a dictionary; time is the clock's."""

    def __init__(
        self,
        clock: Clock,
        *,
        boot_ms: Millis = 0,
        listed_after_ms: Millis = 0,
        gone_after_ms: Millis = 0,
        quota: int = 1_000_000,
        faults: Faults | None = None,
        seed: int = 0,
        capabilities: Capabilities | None = None,
        on_boot: Callable[[MachineSpec], None] = lambda _: None,
        on_end: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._boot_ms = boot_ms
        self._listed_after_ms = listed_after_ms
        self._gone_after_ms = gone_after_ms
        self.quota = quota
        self.faults = faults or Faults()
        self._random = random.Random(seed)  # noqa: S311 - repeats, protects nothing
        self._capabilities = capabilities or Capabilities()
        self._on_boot = on_boot
        self._on_end = on_end
        self.machines: dict[str, MachineSpec] = {}
        self.foreign: list[ProvidedMachine] = []
        self.asleep: set[str] = set()
        self.out_of_stock = False
        self.away = False
        self.most_at_once = 0
        self.calls: list[str] = []
        self._born_ms: dict[str, Millis] = {}
        self._ending_ms: dict[str, Millis] = {}
        self._booted: set[str] = set()
        self._ended: set[str] = set()
        """Tokens whose machine has ended."""
        self._made = 0

    @property
    def capabilities(self) -> Capabilities:
        """See `Provider`."""
        return self._capabilities

    async def create(self, spec: MachineSpec) -> str:
        """See `Provider`."""
        self.calls.append(f"create {spec.token}")
        await asyncio.sleep(0)
        self._refuse_when_away()
        if self._happens(self.faults.no_effect_ppm):
            raise ProviderRefusedError("CONNECTION_RESET", "lost before it had any effect")
        known = next((i for i, made in self.machines.items() if made.token == spec.token), None)
        if known is not None and self._capabilities.creates_once:
            return known
        if spec.token in self._ended and self._capabilities.creates_once:
            raise ProviderRefusedError("INVALID_PARAMETER", f"{spec.token} has ended")
        if len(self.machines) >= self.quota:
            raise ProviderRefusedError("QUOTA_EXCEEDED", f"at most {self.quota} machines")
        if self.out_of_stock or self._happens(self.faults.refused_ppm):
            raise ProviderRefusedError("INSUFFICIENT_INSTANCE_CAPACITY", "none of these are left")
        self._made += 1
        provider_id = f"sim-{self._made}"
        self.machines[provider_id] = spec
        self._born_ms[provider_id] = self._clock.now_ms()
        self.most_at_once = max(self.most_at_once, len(self.machines))
        if self._happens(self.faults.never_boots_ppm):
            self._booted.add(provider_id)
        await asyncio.sleep(0)
        if self._happens(self.faults.lost_answer_ppm):
            raise ProviderRefusedError("CONNECTION_RESET", "lost after it had its effect")
        return provider_id

    async def list_machines(self) -> ProviderListing:
        """See `Provider`."""
        self.calls.append("list")
        await asyncio.sleep(0)
        self._refuse_when_away()
        self.advance()
        now_ms = self._clock.now_ms()
        ours = tuple(
            ProvidedMachine(
                provider_id, spec.machine, spec.owner, spec.token, provider_id in self.asleep
            )
            for provider_id, spec in self.machines.items()
            if now_ms - self._born_ms[provider_id] >= self._listed_after_ms
        )
        complete = not self._happens(self.faults.incomplete_ppm)
        shown = (*ours, *self.foreign)
        return ProviderListing(shown if complete else shown[:1], complete)

    async def suspend(self, provider_id: str) -> None:
        """See `Provider`."""
        self.calls.append(f"suspend {provider_id}")
        await asyncio.sleep(0)
        self._refuse_when_away()
        self.asleep.add(provider_id)

    async def resume(self, provider_id: str) -> None:
        """See `Provider`."""
        self.calls.append(f"resume {provider_id}")
        await asyncio.sleep(0)
        self._refuse_when_away()
        self.asleep.discard(provider_id)

    async def remove(self, provider_id: str) -> None:
        """See `Provider`."""
        self.calls.append(f"remove {provider_id}")
        await asyncio.sleep(0)
        self._refuse_when_away()
        if self._happens(self.faults.no_effect_ppm):
            raise ProviderRefusedError("CONNECTION_RESET", "lost before it had any effect")
        if any(machine.provider_id == provider_id for machine in self.foreign):
            raise AssertionError(f"{provider_id} belongs to somebody else")
        if provider_id in self.machines:
            self._ending_ms.setdefault(provider_id, self._clock.now_ms())
        self.advance()
        await asyncio.sleep(0)
        if self._happens(self.faults.lost_answer_ppm):
            raise ProviderRefusedError("CONNECTION_RESET", "lost after it had its effect")

    def vanish(self, provider_id: str) -> None:
        """Let a machine end by itself, as a failed host would."""
        self._end(provider_id)

    def advance(self) -> None:
        """Let happen what is due: boots and ends."""
        now_ms = self._clock.now_ms()
        for provider_id, at_ms in list(self._ending_ms.items()):
            if now_ms - at_ms >= self._gone_after_ms:
                self._end(provider_id)
        for provider_id, spec in self.machines.items():
            born_ms = self._born_ms[provider_id]
            if provider_id not in self._booted and now_ms - born_ms >= self._boot_ms:
                self._booted.add(provider_id)
                self._on_boot(spec)

    def _end(self, provider_id: str) -> None:
        spec = self.machines.pop(provider_id)
        self._ended.add(spec.token)
        self._ending_ms.pop(provider_id, None)
        del self._born_ms[provider_id]
        self.asleep.discard(provider_id)
        self._booted.discard(provider_id)
        self._on_end(spec.machine)

    def _refuse_when_away(self) -> None:
        if self.away:
            raise ProviderRefusedError("UNAVAILABLE", "nobody answers")

    def _happens(self, ppm: int) -> bool:
        return ppm > 0 and self._random.randrange(1_000_000) < ppm
