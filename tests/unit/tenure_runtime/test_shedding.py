"""A server that is behind with its calls refuses new ones early, and drops what piles up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import Served, serving

from tenure_core.errors import Exhausted
from tenure_runtime.rpc.client import Client, RetryPolicy
from tenure_runtime.rpc.server import ServerOptions
from tenure_runtime.rpc.shedding import AGE_S, FEW, RETRY_AFTER_MS, Load, takes_its_time


def serve(handlers: Echo, **options):
    return serving(echo.register, handlers, SERVICE, methods=METHODS, **options)


async def test_calls_are_refused_while_many_are_under_way_and_the_oldest_is_old() -> None:
    now_s = 0.0
    load = Load(monotonic_s=lambda: now_s)
    go_on = asyncio.Event()
    tasks = [asyncio.create_task(go_on.wait()) for _ in range(FEW - 1)]
    for task in tasks:
        load.note(task)
    now_s = 2 * AGE_S
    few_but_old = load.is_behind()
    young = asyncio.create_task(asyncio.sleep(60))
    load.note(young)
    many_and_old = load.is_behind()
    go_on.set()
    await asyncio.gather(*tasks)
    after_the_old_ones = load.is_behind()
    young.cancel()
    assert (few_but_old, many_and_old, after_the_old_ones) == (False, True, False)


def test_calls_that_wait_by_their_nature_do_not_count() -> None:
    service = "/tenure.admission.v1.AdmissionService"
    assert takes_its_time(f"{service}/WaitLease")
    assert not takes_its_time(f"{service}/CreateLease")


class Stuck:
    """An echo service whose calls wait until they may go on."""

    def __init__(self, served: Served, client: Client) -> None:
        self.served, self.client = served, client
        self.stub = EchoStub(client.channel)
        self.go_on = asyncio.Event()
        self.waiting = 0


@asynccontextmanager
async def behind() -> AsyncIterator[Stuck]:
    """Serve, with so many old calls under way that new ones are refused."""
    stuck: Stuck | None = None

    async def wait(said: str, _context: object) -> str:
        assert stuck is not None
        if said == "wait":
            stuck.waiting += 1
            await stuck.go_on.wait()
        return said

    async with serve(Echo(echo=wait)) as served:
        client = await served.client("user")
        stuck = Stuck(served, client)
        calls = [client.call(stuck.stub.Echo, text("wait"), timeout_s=60) for _ in range(FEW)]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(call)
            while stuck.waiting < FEW:
                await asyncio.sleep(0.01)
            await asyncio.sleep(AGE_S)
            yield stuck
            stuck.go_on.set()


async def test_a_user_is_refused_with_a_reason_and_a_time_to_wait() -> None:
    async with behind() as stuck:
        refused = []
        for open_call in (
            lambda: stuck.client.call(stuck.stub.Echo, text("more"), retry=False),
            lambda: stuck.client.stream(stuck.stub.Tail, text("more")).read(),
        ):
            with pytest.raises(Exhausted) as caught:
                await open_call()
            refused.append((caught.value.reason, caught.value.retry_after_ms))
    assert refused == [("OVERLOADED", RETRY_AFTER_MS)] * 2


async def test_services_and_health_checks_are_served_all_the_same() -> None:
    async with behind() as stuck:
        service = await stuck.served.client("service")
        said = await service.call(EchoStub(service.channel).Echo, text("vital"), retry=False)
        checks = health_pb2_grpc.HealthStub(stuck.client.channel)
        health = await checks.Check(health_pb2.HealthCheckRequest())
    assert (said.value, health.status) == ("vital", health_pb2.HealthCheckResponse.SERVING)


async def test_our_client_calls_again_until_there_is_room() -> None:
    async with behind() as stuck:
        again = asyncio.create_task(stuck.client.call(stuck.stub.Echo, text("patience")))
        await asyncio.sleep(0.2)
        refused_so_far = not again.done()
        stuck.go_on.set()
        said = await again
    assert (refused_so_far, said.value) == (True, "patience")


async def test_what_piles_up_before_it_is_taken_up_is_dropped_and_our_client_calls_again() -> None:
    async def busy(said: str, _context: object) -> str:
        time.sleep(0.005)
        return said

    async with serve(Echo(echo=busy), options=ServerOptions("echo", waiting_max=8)) as served:
        client = await served.client("user", retry=RetryPolicy(attempts=100))
        stub = EchoStub(client.channel)

        async def once(number: int) -> str:
            try:
                await client.call(stub.Echo, text(str(number)), retry=False, timeout_s=30)
            except Exception as error:
                return getattr(error, "reason", repr(error))
            return "OK"

        outcomes = await asyncio.gather(*(once(number) for number in range(200)))
        repeated = await asyncio.gather(
            *(client.call(stub.Echo, text(str(n)), timeout_s=60) for n in range(200))
        )
    assert set(outcomes) == {"OK", "CALL_DROPPED"}
    assert [each.value for each in repeated] == [str(number) for number in range(200)]
