"""What every provider of machines must do; each provider's test runs it on a provider of its own.

`provider_suite` is what `tests/contract/autoscaler/test_providers.py` runs for ours and for the
example of `tenure.provider.v1`; a provider written elsewhere runs it the same way.
"""

from __future__ import annotations

import asyncio

from tenure_autoscaler.providers.port import (
    MachineSpec,
    ProvidedMachine,
    Provider,
    ProviderRefusedError,
)
from tenure_core.autoscaling.provider_errors import ProviderErrorClass, error_class
from tenure_core.resources import ResourceVector

AMOUNTS = ResourceVector({"cpu": 1_000, "memory": 2**28})


def spec(machine: str, generation: int = 1) -> MachineSpec:
    """Return a machine to ask for; the token is of this generation of it."""
    token = f"suite.{machine}.{generation}"
    return MachineSpec(machine, "suite/g", token, "g", "default", AMOUNTS, 1)


async def ours(provider: Provider) -> set[ProvidedMachine]:
    """Return what is listed with the mark of this suite; the listing must be complete."""
    listing = await provider.list_machines()
    assert listing.complete
    return {machine for machine in listing.machines if machine.owner == "suite/g"}


async def gone(provider: Provider, provider_id: str, within_s: float = 30.0) -> None:
    """Wait until a machine is not listed any more."""
    async with asyncio.timeout(within_s):
        while any(machine.provider_id == provider_id for machine in await ours(provider)):
            await asyncio.sleep(0.1)


async def provider_suite(provider: Provider) -> None:
    """Assert what the autoscaler relies on."""
    assert await ours(provider) == set()
    names = provider.capabilities.names or ("machine-1", "machine-2")
    first, second = names[:2]

    made = await provider.create(spec(first))
    assert await ours(provider) == {ProvidedMachine(made, first, "suite/g", spec(first).token)}
    if provider.capabilities.creates_once:
        assert await provider.create(spec(first)) == made, "a token makes one machine"
        assert len(await ours(provider)) == 1

    other = await provider.create(spec(second))
    assert other != made
    assert {machine.token for machine in await ours(provider)} == {
        spec(first).token, spec(second).token,
    }  # fmt: skip

    await provider.remove(made)
    await gone(provider, made)
    await provider.remove(made)
    await provider.remove("never-made")
    assert {machine.provider_id for machine in await ours(provider)} == {other}

    again = await provider.create(spec(first, 2))
    assert again != made, "another token is another machine, though its name was used before"
    for provider_id in (again, other):
        await provider.remove(provider_id)
        await gone(provider, provider_id)


async def refused(provider: Provider, wanted: MachineSpec) -> ProviderErrorClass:
    """Return the class of the refusal that a create must end with."""
    try:
        await provider.create(wanted)
    except ProviderRefusedError as error:
        return error_class(error.code)
    raise AssertionError("it was made")
