"""What every provider of machines must do, tried on one: `tenure machine check-provider`.

It makes machines with a mark of its own and removes them again; those of others it only looks at.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator

from tenure_autoscaler.providers.port import (
    MachineSpec,
    ProvidedMachine,
    Provider,
    ProviderRefusedError,
)
from tenure_core.resources import ResourceVector


class NotConformingError(Exception):
    """A provider does not do what the autoscaler relies on; the text says what."""


class Conformance:
    """Tries one provider. Machines ask for `amounts`; an end may take `gone_within_s`."""

    def __init__(
        self, provider: Provider, amounts: ResourceVector, *, gone_within_s: float = 30.0
    ) -> None:
        self._provider = provider
        self._amounts = amounts
        self._gone_within_s = gone_within_s
        self._owner = f"conformance-{secrets.token_hex(6)}"

    def spec(self, machine: str, life: int = 1) -> MachineSpec:
        """Return a machine to ask for, in one life of it."""
        token = f"{self._owner}.{machine}.{life}"
        return MachineSpec(machine, self._owner, token, "conformance", "default", self._amounts, 1)

    async def run(self) -> AsyncGenerator[str, None]:
        """Yield what holds, one sentence after the other. Raises NotConformingError."""
        foreign = await self._foreign()
        try:
            async for sentence in self._steps():
                yield sentence
        finally:
            for machine in await self._ours():
                await self._provider.remove(machine.provider_id)
        _hold(await self._foreign() >= foreign, "machines of others stay as they are")
        yield "machines of others stay as they are"

    async def _steps(self) -> AsyncGenerator[str, None]:
        _hold(await self._ours() == set(), "a listing is complete")
        yield "a listing is complete, in pages as small as asked for"
        provider = self._provider
        names = provider.capabilities.names or ("conformance-1", "conformance-2")
        _hold(len(names) > 1, "two machines can be had")
        first, second = names[:2]

        made = await provider.create(self.spec(first))
        wanted = ProvidedMachine(made, first, self._owner, self.spec(first).token)
        _hold(await self._ours() == {wanted}, "a machine is listed at once, with its marks")
        yield "a machine is listed at once, with name, owner and token"
        if provider.capabilities.creates_once:
            again = await provider.create(self.spec(first))
            _hold(again == made, "a token makes one machine: a repeat returns it")
            at_once = await asyncio.gather(*(provider.create(self.spec(second)) for _ in range(4)))
            _hold(len(set(at_once)) == 1, "a token makes one machine: four calls at once")
            other = at_once[0]
            yield "a token makes one machine, repeated and four times at once"
        else:
            other = await provider.create(self.spec(second))
        _hold(other != made, "another token makes another machine")
        tokens = {machine.token for machine in await self._ours()}
        _hold(tokens == {self.spec(first).token, self.spec(second).token}, "both are listed")

        await provider.remove(made)
        await self._gone(made)
        await provider.remove(made)
        await provider.remove("never-made")
        _hold({m.provider_id for m in await self._ours()} == {other}, "an end ends one machine")
        yield "an end ends one machine; a repeat of it, or of what never was, is no error"
        if provider.capabilities.creates_once:
            await self._refused(self.spec(first))
            yield "a token whose machine has ended makes none"

        later = await provider.create(self.spec(first, 2))
        _hold(later != made, "another life of a name is another machine")
        yield "a name can be used again, with another token"
        for provider_id in (later, other):
            await provider.remove(provider_id)
            await self._gone(provider_id)

    async def _refused(self, spec: MachineSpec) -> None:
        try:
            made = await self._provider.create(spec)
        except ProviderRefusedError:
            return
        raise NotConformingError(f"a token whose machine has ended made {made}")

    async def _listing(self) -> tuple[ProvidedMachine, ...]:
        listing = await self._provider.list_machines()
        _hold(listing.complete, "a listing is complete")
        return listing.machines

    async def _ours(self) -> set[ProvidedMachine]:
        return {machine for machine in await self._listing() if machine.owner == self._owner}

    async def _foreign(self) -> set[str]:
        machines = await self._listing()
        return {each.provider_id for each in machines if each.owner != self._owner}

    async def _gone(self, provider_id: str) -> None:
        end = time.monotonic() + self._gone_within_s
        while any(machine.provider_id == provider_id for machine in await self._ours()):
            _hold(time.monotonic() < end, f"a machine ends within {self._gone_within_s:.0f} s")
            await asyncio.sleep(0.1)


def _hold(holds: bool, sentence: str) -> None:
    if not holds:
        raise NotConformingError(f"this does not hold: {sentence}")
