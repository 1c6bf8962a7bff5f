"""Ours and the example of an external one: every provider passes the same suite."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from tenure.provider.v1 import provider_pb2 as ppb
from tenure.provider.v1 import provider_pb2_grpc
from tenure_autoscaler.providers.conformance import Conformance, NotConformingError
from tenure_autoscaler.providers.external import ExternalProvider
from tenure_autoscaler.providers.loading import load_provider
from tenure_autoscaler.providers.port import (
    Capabilities,
    MachineSpec,
    Provider,
    ProviderRefusedError,
)
from tenure_autoscaler.providers.process import ProcessProvider
from tenure_autoscaler.providers.simulated import SimulatedProvider
from tenure_core.autoscaling.provider_errors import ProviderErrorClass, error_class
from tenure_core.resources import ResourceVector
from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.detached import end_all
from tenure_runtime.rpc.client import connect

AMOUNTS = ResourceVector({"cpu": 1_000, "memory": 2**28})
EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "machine_provider.py"


def spec(machine: str) -> MachineSpec:
    return MachineSpec(machine, "suite/g", f"suite.{machine}.1", "g", "default", AMOUNTS, 1)


async def refused(provider: Provider, wanted: MachineSpec) -> ProviderErrorClass:
    """Return the class of the refusal that a create must end with."""
    with pytest.raises(ProviderRefusedError) as refusal:
        await provider.create(wanted)
    return error_class(refusal.value.code)


async def conforms(provider: Provider) -> list[str]:
    """Return what holds, in order; fail with what does not."""
    return [sentence async for sentence in Conformance(provider, AMOUNTS).run()]


@asynccontextmanager
async def served(servicer: Any, key: str | None = None) -> AsyncIterator[ExternalProvider]:
    """Serve a provider on a free port and return ours that calls it."""
    server = grpc.aio.server()
    provider_pb2_grpc.add_MachineProviderServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with connect(f"127.0.0.1:{port}", api_key=key) as client:
            yield ExternalProvider(client)
    finally:
        await server.stop(0)


def example() -> Any:
    """Return the example's servicer."""
    found = importlib.util.spec_from_file_location("machine_provider", EXAMPLE)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.Machines()


async def test_the_simulated_provider_passes_the_suite() -> None:
    await conforms(SimulatedProvider(SystemClock()))


async def test_the_provider_of_processes_passes_the_suite(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    for number in (1, 2):
        (keys / f"machine-{number}.key").write_text("tnr_x\n")
    try:
        await conforms(ProcessProvider(tmp_path / "machines", keys, "127.0.0.1:9"))
    finally:
        await asyncio.to_thread(end_all, tmp_path / "machines", grace_s=5.0)


async def test_the_example_of_an_external_provider_passes_the_suite() -> None:
    async with served(example()) as provider:
        sentences = await conforms(provider)
    assert "a token makes one machine, repeated and four times at once" in sentences
    assert sentences[-1] == "machines of others stay as they are"


class Forgetful(SimulatedProvider):
    """Makes a machine at each call, whatever the token."""

    async def create(self, spec: MachineSpec) -> str:
        return await super().create(replace(spec, token=f"{spec.token}.{len(self.calls)}"))


class Greedy(SimulatedProvider):
    """Ends all machines when one is to end."""

    async def remove(self, provider_id: str) -> None:
        for machine in (await self.list_machines()).machines:
            await super().remove(machine.provider_id)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [(Forgetful, "with its marks"), (Greedy, "an end ends one machine")],
)
async def test_a_provider_that_does_not_conform_is_told_where(
    kind: type[SimulatedProvider], fault: str
) -> None:
    provider = kind(SystemClock())
    with pytest.raises(NotConformingError, match=fault):
        await conforms(provider)
    assert (await provider.list_machines()).machines == ()


async def test_the_example_says_why_it_refuses() -> None:
    async with served(example()) as provider:
        assert await refused(provider, replace(spec("a"), owner="")) is (
            ProviderErrorClass.BAD_REQUEST
        )
        for number in range(20):
            await provider.create(spec(f"m{number}"))
        assert await refused(provider, spec("one-more")) is ProviderErrorClass.QUOTA
        assert len((await provider.list_machines()).machines) == 20


class Scripted(provider_pb2_grpc.MachineProviderServiceServicer):
    """A provider that answers as a test says."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.seen: list[tuple[str, str]] = []
        self.pages: dict[str, ppb.ListMachinesResponse] = {}

    async def CreateMachine(self, request: Any, context: Any) -> Any:
        metadata = dict(context.invocation_metadata())
        self.seen.append((request.spec.token, metadata.get("authorization", "")))
        if self.code is not None:
            await context.abort(self.code, "as scripted")
        return ppb.CreateMachineResponse()

    async def ListMachines(self, request: Any, context: Any) -> Any:
        return self.pages[request.page_token]

    async def RemoveMachine(self, request: Any, context: Any) -> Any:
        if self.code is not None:
            await context.abort(self.code, "as scripted")
        return ppb.RemoveMachineResponse()


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ProviderErrorClass.QUOTA),
        (grpc.StatusCode.PERMISSION_DENIED, ProviderErrorClass.AUTH),
        (grpc.StatusCode.UNAUTHENTICATED, ProviderErrorClass.AUTH),
        (grpc.StatusCode.INVALID_ARGUMENT, ProviderErrorClass.BAD_REQUEST),
        (grpc.StatusCode.UNIMPLEMENTED, ProviderErrorClass.BAD_REQUEST),
        (grpc.StatusCode.UNAVAILABLE, ProviderErrorClass.UNCLEAR),
        (grpc.StatusCode.INTERNAL, ProviderErrorClass.UNCLEAR),
    ],
)
async def test_a_status_without_a_word_has_a_class(
    code: grpc.StatusCode, meaning: ProviderErrorClass
) -> None:
    """An unclear one is asked once only: whether it had an effect is the listing's to say."""
    scripted = Scripted()
    scripted.code = code
    async with served(scripted, key="tnr_own") as provider:
        assert await refused(provider, spec("m")) is meaning
    assert scripted.seen == [(spec("m").token, "Bearer tnr_own")]


async def test_an_end_of_what_is_gone_is_no_error_and_any_other_refusal_is() -> None:
    scripted = Scripted()
    async with served(scripted) as provider:
        scripted.code = grpc.StatusCode.NOT_FOUND
        await provider.remove("x")
        scripted.code = grpc.StatusCode.UNAVAILABLE
        with pytest.raises(ProviderRefusedError):
            await provider.remove("x")


async def test_a_machine_without_an_id_is_an_unclear_answer() -> None:
    async with served(Scripted()) as provider:
        assert await refused(provider, spec("m")) is ProviderErrorClass.UNCLEAR


async def test_a_listing_is_read_to_its_end_and_lacks_what_one_page_lacks() -> None:
    """Before the first listing no machine can be had, whatever the provider can do."""
    scripted = Scripted()
    told = ppb.Capabilities(creates_once=True, machine_names=["a", "b"], launches_per_minute=7)
    scripted.pages = {
        "": ppb.ListMachinesResponse(
            machines=[ppb.ProvidedMachine(provider_id="1")], next_page_token="n", capabilities=told
        ),
        "n": ppb.ListMachinesResponse(
            machines=[ppb.ProvidedMachine(provider_id="2")], incomplete=True
        ),
    }
    async with served(scripted) as provider:
        assert provider.capabilities.names == ()
        listing = await provider.list_machines()
        assert [machine.provider_id for machine in listing.machines] == ["1", "2"]
        assert not listing.complete
        assert provider.capabilities == Capabilities(names=("a", "b"), launches_per_minute=7)


def test_the_provider_needs_an_address() -> None:
    from tenure_autoscaler.settings import AutoscalerSettings

    settings = AutoscalerSettings.model_construct(external_provider_address=None)
    with pytest.raises(ValueError, match="TENURE_EXTERNAL_PROVIDER_ADDRESS"):
        load_provider("external", settings)
