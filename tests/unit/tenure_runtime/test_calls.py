"""Calls over real gRPC: errors, identity, deadlines, retries and traces at the edge."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
import structlog
from google.rpc import error_details_pb2, status_pb2
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import Served, serving

from tenure_core.errors import (
    AlreadyExists,
    Conflict,
    DomainError,
    Exhausted,
    Forbidden,
    Invalid,
    NotFound,
    Stale,
    Unauthenticated,
    Unavailable,
    Violation,
    WrongState,
)
from tenure_runtime.rpc import deadline
from tenure_runtime.rpc.client import Client, RetryPolicy, connect
from tenure_runtime.rpc.identity import Permissions, Role, current_identity
from tenure_runtime.rpc.server import ServerOptions
from tenure_runtime.rpc.status import DETAILS_KEY, RemoteFailure, decode, encode
from tenure_runtime.telemetry.logging import configure_logging
from tenure_runtime.telemetry.tracing import current_traceparent

KINDS = [
    (Invalid([Violation("a.b", "TOO_LONG", "must be short"), Violation("c", "BAD", "is bad")]), 3),
    (NotFound("LEASE_NOT_FOUND", "There is no such lease.", lease="x"), 5),
    (AlreadyExists("LEASE_EXISTS", "It exists."), 6),
    (Conflict("ETAG_MISMATCH", "Read again."), 10),
    (WrongState("LEASE_ENDED", "It has ended."), 9),
    (Stale("STALE_EPOCH", "Step down.", epoch=3, highest=4), 9),
    (Stale("RESUME_TOKEN_EXPIRED", "List again."), 11),
    (Exhausted("QUOTA_EXHAUSTED", "Used up.", retry_after_ms=1_500, quota="cpu"), 8),
    (Unauthenticated("API_KEY_INVALID", "Who?"), 16),
    (Forbidden("METHOD_FORBIDDEN", "No."), 7),
    (Unavailable("NOT_LEADER", "Ask another.", retry_after_ms=20), 14),
    (Unavailable("AWAY", "Later."), 14),
]


def serve(handlers: Echo, **options):
    return serving(echo.register, handlers, SERVICE, methods=METHODS, **options)


def raises(error: Exception) -> Echo:
    async def handler(_text: str, _context: object) -> str:
        raise error

    return Echo(echo=handler)


async def ask(client: Client, value: str = "", **options) -> str:
    return (await client.call(EchoStub(client.channel).Echo, text(value), **options)).value


def same(one: DomainError, other: DomainError) -> bool:
    facts = [
        (
            type(e),
            e.reason,
            e.message,
            dict(e.metadata),
            getattr(e, "violations", None),
            getattr(e, "retry_after_ms", None),
        )
        for e in (one, other)
    ]
    return facts[0] == facts[1]


@pytest.mark.parametrize(("error", "number"), KINDS, ids=lambda value: str(value)[:20])
async def test_every_kind_of_error_arrives_as_it_left(error: DomainError, number: int) -> None:
    async with serve(raises(error)) as served:
        client = await served.client()
        with pytest.raises(grpc.aio.AioRpcError) as raw:
            await EchoStub(client.channel).Echo(text(""), metadata=client._metadata())
        with pytest.raises(type(error)) as caught:
            await ask(client, retry=False)
    assert raw.value.code().value[0] == number
    assert same(caught.value, error)


async def test_a_status_has_exactly_one_error_info_of_the_services_domain() -> None:
    for error, _ in KINDS:
        status = encode(error, "admission")
        infos = [d for d in status.details if d.Is(error_details_pb2.ErrorInfo.DESCRIPTOR)]
        assert len(infos) == 1
        info = error_details_pb2.ErrorInfo()
        infos[0].Unpack(info)
        assert (info.reason, info.domain) == (error.reason, "admission.tenure")


async def test_hundreds_of_violations_still_fit_into_the_trailers() -> None:
    violations = [Violation(f"leases[{n}].duration", "TOO_LONG", "é" * 900) for n in range(700)]
    async with serve(raises(Invalid(violations))) as served:
        client = await served.client()
        with pytest.raises(grpc.aio.AioRpcError) as raw:
            await EchoStub(client.channel).Echo(text(""), metadata=client._metadata())
    error = decode(raw.value)
    assert isinstance(error, Invalid)
    assert 1 <= len(error.violations) < 700
    assert error.violations[0].field == "leases[0].duration"
    status = status_pb2.Status.FromString(dict(raw.value.trailing_metadata())[DETAILS_KEY])
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    assert int(info.metadata["violationsOmitted"]) == 700 - len(error.violations)


async def test_the_text_of_an_unknown_exception_stays_here_and_its_incident_is_in_the_log() -> None:
    log = io.StringIO()
    handlers = logging.root.handlers[:]
    configure_logging("echo", stream=log)
    try:
        async with serve(raises(ValueError("secret detail"))) as served:
            client = await served.client()
            with pytest.raises(grpc.aio.AioRpcError) as raw:
                await EchoStub(client.channel).Echo(text(""), metadata=client._metadata())
    finally:
        structlog.reset_defaults()
        logging.root.handlers[:] = handlers
    left = str(raw.value.details()) + str(raw.value.trailing_metadata())
    assert raw.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in left
    assert "ValueError" not in left
    incident = decode(raw.value).metadata["incident"]
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    [failed] = [line for line in lines if line["event"] == "call.failed"]
    assert failed["incident"] == incident
    assert "secret detail" in failed["exception"]
    [served_line] = [line for line in lines if line["event"] == "call.served"]
    assert (served_line["code"], served_line["caller"]) == ("INTERNAL", "all")
    assert served_line["trace_id"] == failed["trace_id"]


async def test_a_bug_behind_is_an_incident_of_ours_with_one_line() -> None:
    log = io.StringIO()
    handlers = logging.root.handlers[:]
    async with serve(raises(ValueError("secret detail"))) as behind:
        inner = await behind.client()

        async def pass_on(_text: str, _context: object) -> str:
            return await ask(inner)

        configure_logging("echo", stream=log)
        try:
            async with serve(Echo(pass_on)) as front:
                client = await front.client()
                with pytest.raises(RemoteFailure) as caught:
                    await ask(client)
        finally:
            structlog.reset_defaults()
            logging.root.handlers[:] = handlers
    incident = caught.value.metadata["incident"]
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    ours = [line["event"] for line in lines if line.get("incident") == incident]
    assert ours == ["call.failed", "call.served"]


async def test_an_exception_in_a_stream_does_not_leak_either() -> None:
    async def tail(_text: str, _context: object) -> AsyncIterator[str]:
        yield "one"
        raise KeyError("secret detail")

    async with serve(Echo(tail=tail)) as served:
        client = await served.client()
        async with client.stream(EchoStub(client.channel).Tail, text("")) as stream:
            assert (await stream.read()).value == "one"
            with pytest.raises(RemoteFailure) as caught:
                await stream.read()
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)


async def test_plain_errors_without_details_are_understood() -> None:
    async def handler(_text: str, context) -> str:
        await context.abort(grpc.StatusCode.NOT_FOUND, "plain")
        raise AssertionError

    async with serve(Echo(echo=handler)) as served:
        with pytest.raises(NotFound) as caught:
            await ask(await served.client())
    assert (caught.value.reason, caught.value.message) == ("NOT_FOUND", "plain")


async def test_an_unknown_method_is_a_remote_failure() -> None:
    async with serve(Echo()) as served:
        client = await served.client()
        method = client.channel.unary_unary(f"/{SERVICE}/Missing")
        with pytest.raises(RemoteFailure) as caught:
            await client.call(method, b"")
    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED


async def test_keys_and_roles_decide_who_may_call() -> None:
    async def whoami(_text: str, _context: object) -> str:
        return current_identity().name

    permissions = Permissions.of(SERVICE, {"Echo": {Role.USER, Role.OPERATOR}})
    async with serving(echo.register, Echo(whoami), SERVICE, permissions=permissions) as served:
        assert await ask(await served.client("user")) == "user"
        assert await ask(await served.client("operator")) == "operator"
        await refused(served, served.keys["agent"], Forbidden, "METHOD_FORBIDDEN")
        await refused(served, None, Unauthenticated, "API_KEY_MISSING")
        for wrong in (
            "x",
            "tnr_user_" + "0" * 64,
            "tnr_nobody_" + "0" * 64,
            served.keys["user"][:-1],
            served.keys["user"].replace("tnr_user", "tnr_operator"),
        ):
            await refused(served, wrong, Unauthenticated, "API_KEY_INVALID")
        client = await served.client("user")
        with pytest.raises(Forbidden):
            async with client.stream(EchoStub(client.channel).Tail, text("")) as stream:
                await stream.read()


async def refused(served: Served, key: str | None, kind: type[DomainError], reason: str) -> None:
    async with connect(served.target, api_key=key) as client:
        with pytest.raises(kind) as caught:
            await ask(client)
    assert caught.value.reason == reason


async def test_the_deadline_of_a_call_is_passed_on_to_the_calls_made_for_it() -> None:
    async def remaining(_text: str, context) -> str:
        return str(context.time_remaining())

    async with serve(Echo(remaining)) as behind:
        inner = await behind.client()

        async def pass_on(value: str, _context: object) -> str:
            async with asyncio.TaskGroup() as group:
                return await group.create_task(ask(inner, timeout_s=60))

        async def detached(value: str, _context: object) -> str:
            with deadline.detached():
                return await ask(inner, timeout_s=60)

        async with serve(Echo(pass_on)) as front:
            assert 0 < float(await ask(await front.client(), timeout_s=3)) <= 3.2
        async with serve(Echo(detached)) as front:
            assert 50 < float(await ask(await front.client(), timeout_s=3)) <= 61


async def test_a_deadline_ends_the_handler_and_the_call_behind_it() -> None:
    ended = asyncio.Event()

    async def waits(_text: str, _context: object) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with serve(Echo(waits)) as behind:
        inner = await behind.client()

        async def pass_on(_text: str, _context: object) -> str:
            return await ask(inner)

        async with serve(Echo(pass_on)) as front:
            with pytest.raises(RemoteFailure) as caught:
                await ask(await front.client(), timeout_s=0.2)
            assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
            async with asyncio.timeout(2):
                await ended.wait()


async def test_only_unavailable_is_repeated_and_waits_grow_with_jitter() -> None:
    calls = 0

    async def flaky(_text: str, _context: object) -> str:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise Unavailable("AWAY", "Later.", retry_after_ms=600 if calls == 3 else None)
        return "done"

    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with serve(Echo(flaky)) as served:
        client = await served.client(rng=random.Random(1), sleep=sleep)
        assert await ask(client) == "done"
        assert calls == 4
        assert 0 <= waits[0] <= 0.05
        assert 0 <= waits[1] <= 0.1
        assert waits[2] == 0.6
        calls = 0
        with pytest.raises(Unavailable):
            await ask(client, retry=False)
        assert calls == 1


@pytest.mark.parametrize("error", [Conflict("X", "x"), Exhausted("X", "x"), ValueError()])
async def test_nothing_else_is_repeated(error: Exception) -> None:
    calls = 0

    async def fails(_text: str, _context: object) -> str:
        nonlocal calls
        calls += 1
        raise error

    async with serve(Echo(fails)) as served:
        with pytest.raises(DomainError):
            await ask(await served.client())
    assert calls == 1


async def test_retries_are_bounded_by_number_and_by_time() -> None:
    calls = 0

    async def away(_text: str, _context: object) -> str:
        nonlocal calls
        calls += 1
        raise Unavailable("AWAY", "Later.")

    async def no_sleep(_: float) -> None:
        pass

    async with serve(Echo(away)) as served:
        client = await served.client(retry=RetryPolicy(attempts=5), sleep=no_sleep)
        with pytest.raises(Unavailable):
            await ask(client)
        assert calls == 5
        late = await served.client(retry=RetryPolicy(attempts=50, first_ms=60_000))
        calls = 0
        with pytest.raises(Unavailable):
            await ask(late, timeout_s=0.05)
        assert calls <= 3


async def test_a_call_bridges_the_restart_of_a_server() -> None:
    async with serve(Echo()) as first:
        client = connect(first.target, api_key=first.keys["all"])
        assert await ask(client, "one") == "one"
    call = asyncio.ensure_future(ask(client, "two", timeout_s=10))
    await asyncio.sleep(0.3)
    assert not call.done()
    async with serve(Echo(), like=first, options=ServerOptions("echo", first.target)):
        assert await call == "two"
    await client.close()


async def test_calls_are_spread_over_all_addresses_and_outlive_one_of_them() -> None:
    def named(name: str) -> Echo:
        async def handler(_text: str, _context: object) -> str:
            return name

        return Echo(handler)

    async with serve(named("a")) as one:
        async with serve(named("b"), like=one) as two:
            target = f"ipv4:{one.target},{two.target}"
            client = connect(target, api_key=one.keys["all"])
            answers = [await ask(client) for _ in range(40)]
            assert 16 <= answers.count("a") <= 24
        assert [await ask(client) for _ in range(20)] == ["a"] * 20
        await client.close()


async def test_the_trace_travels_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)

    async def trace(_text: str, _context: object) -> str:
        return current_traceparent()

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with serve(Echo(trace)) as served:
        client = await served.client()
        stub = EchoStub(client.channel)
        metadata = (*client._metadata(), ("traceparent", parent))
        assert (await stub.Echo(text(""), metadata=metadata)).value == parent
        ours = await ask(client)
        assert ours[:3] == "00-"
        assert ours[-3:] == "-00"

        async def pass_on(_text: str, _context: object) -> str:
            return await ask(client)

        async with serve(Echo(pass_on)) as front:
            outer = await front.client()
            metadata = (*outer._metadata(), ("traceparent", parent))
            assert (await EchoStub(outer.channel).Echo(text(""), metadata=metadata)).value == parent


@asynccontextmanager
async def far_away(port: int, delay_s: float) -> AsyncIterator[str]:
    """A way to a local server on which every byte takes `delay_s`."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await asyncio.sleep(delay_s)
            writer.write(data)
        writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            back.transport.abort()
            writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        carried: list[asyncio.Task[None]] = []

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            carried.append(group.create_task(carry(reader, writer)))

        async with await asyncio.start_server(accept, "127.0.0.1", 0) as way:
            yield f"127.0.0.1:{way.sockets[0].getsockname()[1]}"
        for task in carried:
            task.cancel()


async def test_a_server_that_is_slow_to_shake_hands_is_reached_at_the_first_attempt() -> None:
    """A busy or distant peer takes longer than the pause before the first reconnection."""
    async with (
        serve(Echo()) as served,
        far_away(served.port, 0.3) as target,
        connect(target, api_key=served.keys["all"]) as client,
    ):
        assert await ask(client, "hello", retry=False) == "hello"
