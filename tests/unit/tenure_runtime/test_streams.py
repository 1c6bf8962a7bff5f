"""Streams, health and the stop of a server over real gRPC: the pitfalls that trials showed."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import serving

from tenure_core.errors import DomainError, Exhausted, Unavailable
from tenure_runtime.rpc.client import Client, connect, open_channel
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.server import ServerOptions
from tenure_runtime.rpc.status import RemoteFailure
from tenure_runtime.rpc.stream import ClientStream

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def serve(handlers: Echo, **options):
    return serving(echo.register, handlers, SERVICE, methods=METHODS, **options)


async def test_a_duplex_stream_carries_both_ways_and_ends() -> None:
    async def shout(texts: AsyncIterator[str], _context: object) -> AsyncIterator[str]:
        async for each in texts:
            yield each.upper()

    async with serve(Echo(talk=shout)) as served:
        client = await served.client()
        async with client.duplex(EchoStub(client.channel).Talk) as stream:
            for word in ("a", "b"):
                await stream.write(text(word))
                assert (await stream.read()).value == word.upper()
            await stream.done_writing()
            assert await stream.read() is None


async def test_a_stream_of_requests_is_served() -> None:
    async with serve(Echo()) as served:
        client = await served.client()
        call = EchoStub(client.channel).Gather(metadata=client._metadata())
        for word in "abc":
            await call.write(text(word))
        await call.done_writing()
        assert (await call).value == "abc"


async def test_leaving_a_stream_cancels_its_handler() -> None:
    ended = asyncio.Event()

    async def endless(_text: str, _context: object) -> AsyncIterator[str]:
        try:
            yield "first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serve(Echo(tail=endless)) as served:
        client = await served.client()
        async with client.stream(EchoStub(client.channel).Tail, text("")) as stream:
            assert (await stream.read()).value == "first"
        async with asyncio.timeout(2):
            await ended.wait()


async def test_a_failed_write_tells_why_the_stream_ended() -> None:
    async def refuses(_texts: AsyncIterator[str], _context: object) -> AsyncIterator[str]:
        raise Exhausted("TOO_MANY_AGENTS", "Come back later.", retry_after_ms=100)
        yield

    async with serve(Echo(talk=refuses)) as served:
        client = await served.client()
        async with client.duplex(EchoStub(client.channel).Talk) as stream:
            with pytest.raises(Exhausted) as caught:
                await write_for_ever(stream)
            assert await failure(stream.read()) == caught.value.reason
    assert (caught.value.reason, caught.value.retry_after_ms) == ("TOO_MANY_AGENTS", 100)


async def write_for_ever(stream: ClientStream) -> None:
    while True:
        await stream.write(text("x" * 1_000))
        await asyncio.sleep(0)


async def failure(call: Awaitable[object]) -> str:
    with pytest.raises(DomainError) as caught:
        await call
    return caught.value.reason


async def test_a_stream_that_ended_well_says_so_to_a_writer() -> None:
    async def ends(_texts: AsyncIterator[str], _context: object) -> AsyncIterator[str]:
        return
        yield

    async with serve(Echo(talk=ends)) as served:
        client = await served.client()
        async with client.duplex(EchoStub(client.channel).Talk) as stream:
            assert await failure(write_for_ever(stream)) == "STREAM_ENDED"
            assert await stream.read() is None


async def test_a_watcher_that_does_not_read_is_cut_off_and_its_handler_ends() -> None:
    ended = asyncio.Event()

    async def flood(_text: str, _context: object) -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * 65_536
        finally:
            ended.set()

    options = ServerOptions("echo", write_timeout_s=0.3)
    async with serve(Echo(tail=flood), options=options) as served:
        client = await served.client()
        async with client.stream(EchoStub(client.channel).Tail, text("")) as stream:
            assert await stream.read()
            async with asyncio.timeout(10):
                await ended.wait()
            with pytest.raises(Exhausted) as caught:
                async for _ in stream:
                    pass
    assert caught.value.reason == "WATCHER_TOO_SLOW"


async def test_two_thousand_streams_opened_in_a_burst_are_all_served() -> None:
    """With gRPC's own limit of calls not yet taken up, 2-45 % of such a burst were lost."""
    opened = 0
    go_on = asyncio.Event()

    async def hold(texts: AsyncIterator[str], _context: object) -> AsyncIterator[str]:
        nonlocal opened
        async for each in texts:
            opened += 1
            await go_on.wait()
            yield each

    async with serve(Echo(talk=hold), options=ServerOptions("echo", waiting_max=10_000)) as served:
        client = await served.client()
        stub = EchoStub(client.channel)

        async def one(number: int) -> str:
            async with client.duplex(stub.Talk) as stream:
                await stream.write(text(str(number)))
                answer = await stream.read()
                assert answer is not None
                return answer.value

        calls = [asyncio.ensure_future(one(number)) for number in range(2_000)]
        async with asyncio.timeout(60):
            while opened < 2_000:
                failed = [c.exception() for c in calls if c.done()]
                assert failed == []
                await asyncio.sleep(0.02)
            go_on.set()
            assert await asyncio.gather(*calls) == [str(number) for number in range(2_000)]


async def test_frequent_keepalive_pings_are_welcome() -> None:
    """With default settings the server answered GOAWAY ENHANCE_YOUR_CALM after some pings."""

    async def slow(_text: str, _context: object) -> AsyncIterator[str]:
        yield "first"
        await asyncio.sleep(6)
        yield "second"

    async with serve(Echo(tail=slow)) as served:
        arguments = [
            ("grpc.keepalive_time_ms", 1_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        channel = grpc.aio.insecure_channel(served.target, arguments)
        async with (
            Client(channel, api_key=served.keys["all"]) as client,
            client.stream(EchoStub(channel).Tail, text("")) as stream,
        ):
            assert [message.value async for message in stream] == ["first", "second"]


async def test_a_message_over_the_limit_is_refused() -> None:
    async with serve(Echo(), options=ServerOptions("echo", message_bytes_max=10_000)) as served:
        client = await served.client()
        stub = EchoStub(client.channel)
        assert (await client.call(stub.Echo, text("x" * 9_000))).value == "x" * 9_000
        with pytest.raises(Exhausted):
            await client.call(stub.Echo, text("x" * 11_000))


async def test_a_stop_tells_streams_refuses_calls_and_is_quick() -> None:
    draining = Draining()
    finished: list[str] = []
    begun = asyncio.Event()

    async def follows(_text: str, _context: object) -> AsyncIterator[str]:
        async def nothing() -> AsyncIterator[str]:
            yield "first"
            await asyncio.Event().wait()

        async for each in draining.until(nothing()):
            yield each

    async def working(_text: str, _context: object) -> str:
        begun.set()
        await draining.wait()
        await asyncio.sleep(0.3)
        finished.append("unary")
        return "done"

    async with serve(Echo(echo=working, tail=follows), draining=draining) as served:
        client = await served.client()
        stub = EchoStub(client.channel)
        call = asyncio.ensure_future(client.call(stub.Echo, text("")))
        async with client.stream(stub.Tail, text("")) as stream:
            assert (await stream.read()).value == "first"
            await begun.wait()
            started = time.monotonic()
            stop = asyncio.ensure_future(served.server.stop(20))
            with pytest.raises(Unavailable) as caught:
                await stream.read()
            assert caught.value.reason == "SERVER_DRAINING"
            other = connect(served.target, api_key=served.keys["all"])
            with pytest.raises(Unavailable):
                await other.call(EchoStub(other.channel).Echo, text(""), retry=False)
            await other.close()
            await stop
        assert (await call).value == "done"
        assert finished == ["unary"]
        assert time.monotonic() - started < 10


async def test_health_needs_no_key_follows_each_service_and_ends_at_a_stop() -> None:
    async with serve(Echo()) as served, open_channel_to(served.target) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == SERVING
        await served.server.set_serving(False, SERVICE)
        assert (await watch.read()).status == NOT_SERVING
        whole = await health.Check(health_pb2.HealthCheckRequest())
        assert whole.status == SERVING
        await served.server.set_serving(True, SERVICE)
        assert (await watch.read()).status == SERVING
        started = time.monotonic()
        stop = asyncio.ensure_future(served.server.stop(20))
        assert (await watch.read()).status == NOT_SERVING
        await stop
        assert time.monotonic() - started < 10


FORKED = """
import asyncio, os, sys
from tenure_runtime.rpc.client import connect
from tenure_runtime.rpc.transport import ForkedProcess

async def use():
    await connect("127.0.0.1:1").close()

asyncio.run(use())
child = os.fork()
if child == 0:
    try:
        asyncio.run(use())
    except ForkedProcess:
        os._exit(7)
    os._exit(1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


async def test_a_forked_child_is_told_instead_of_hanging() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", FORKED)
    async with asyncio.timeout(20):
        assert await process.wait() == 7


async def test_reflection_needs_no_key_and_lists_the_services() -> None:
    async with serve(Echo()) as served, open_channel_to(served.target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([request]))
        listed = [
            each.name async for answer in call for each in answer.list_services_response.service
        ]
    assert sorted(listed) == sorted(
        ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", SERVICE]
    )


def open_channel_to(target: str) -> grpc.aio.Channel:
    from tenure_runtime.rpc.client import ChannelOptions

    return open_channel(ChannelOptions(target))


async def test_a_taken_port_is_said_plainly() -> None:
    async with serve(Echo()) as served:
        with pytest.raises(OSError, match=f"cannot listen on {served.target}"):
            async with serve(Echo(), options=ServerOptions("echo", served.target)):
                pass


async def test_a_server_that_is_gone_is_unavailable() -> None:
    async with serve(Echo()) as served:
        target = served.target
    async with connect(target) as client:
        with pytest.raises((Unavailable, RemoteFailure)):
            await client.call(EchoStub(client.channel).Echo, text(""), retry=False, timeout_s=2)


async def test_draining_passes_items_on_and_ends_with_them() -> None:
    async def three() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    assert [each async for each in Draining().until(three())] == [0, 1, 2]
