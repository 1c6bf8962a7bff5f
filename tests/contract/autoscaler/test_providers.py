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
from tests.support.provider_suite import ours, provider_suite, refused, spec

from tenure.provider.v1 import provider_pb2 as ppb
from tenure.provider.v1 import provider_pb2_grpc
from tenure_autoscaler.providers.external import ExternalProvider
from tenure_autoscaler.providers.loading import load_provider
from tenure_autoscaler.providers.port import Capabilities, ProviderRefusedError
from tenure_autoscaler.providers.process import ProcessProvider
from tenure_autoscaler.providers.simulated import SimulatedProvider
from tenure_core.autoscaling.provider_errors import ProviderErrorClass
from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.detached import end_all
from tenure_runtime.rpc.client import connect

EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "machine_provider.py"


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
    await provider_suite(SimulatedProvider(SystemClock()))


async def test_the_provider_of_processes_passes_the_suite(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    for number in (1, 2):
        (keys / f"machine-{number}.key").write_text("tnr_x\n")
    try:
        await provider_suite(ProcessProvider(tmp_path / "machines", keys, "127.0.0.1:9"))
    finally:
        await asyncio.to_thread(end_all, tmp_path / "machines", grace_s=5.0)


async def test_the_example_of_an_external_provider_passes_the_suite() -> None:
    async with served(example()) as provider:
        await provider_suite(provider)


async def test_the_example_says_why_it_refuses() -> None:
    async with served(example()) as provider:
        assert await refused(provider, replace(spec("a"), owner="")) is (
            ProviderErrorClass.BAD_REQUEST
        )
        for number in range(20):
            await provider.create(spec(f"m{number}"))
        assert await refused(provider, spec("one-more")) is ProviderErrorClass.QUOTA
        assert len(await ours(provider)) == 20


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
