"""Traces: one trace through several servers, exported over OTLP; and nothing at all without."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import copy_context

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import serving

from tenure_core.errors import NotFound
from tenure_runtime.rpc.client import Client
from tenure_runtime.telemetry.otlp import OtlpSink
from tenure_runtime.telemetry.spans import LINKS_MAX, TEXT_MAX, valid_traceparent
from tenure_runtime.telemetry.tracing import (
    Sampler,
    adopt,
    configure_tracing,
    current_trace_id,
    current_traceparent,
    outer_traceparent,
    shutdown_tracing,
    span,
    span_in_each,
    use_sinks,
)

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _in_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    use_sinks(OtlpSink(SimpleSpanProcessor(exporter)))
    yield exporter
    use_sinks()


def serve(handlers: Echo):
    return serving(echo.register, handlers, SERVICE, methods=METHODS)


async def ask(client: Client, value: str = "") -> str:
    return (await client.call(EchoStub(client.channel).Echo, text(value))).value


def tree(spans: list[ReadableSpan]) -> list[tuple[str, str]]:
    names = {each.context.span_id: each.name for each in spans}
    return sorted(
        (f"{s.kind.name} {s.name}", names[s.parent.span_id] if s.parent else "") for s in spans
    )


async def test_one_request_is_one_trace_through_all_servers(spans: InMemorySpanExporter) -> None:
    async with serve(Echo()) as behind:
        inner = await behind.client()

        async def pass_on(value: str, _context: object) -> str:
            with span("echo.pass", pool_name="main"):
                return await ask(inner, value)

        async with serve(Echo(pass_on)) as front:
            assert await ask(await front.client(), "hello") == "hello"
    finished = list(spans.get_finished_spans())
    assert len({each.context.trace_id for each in finished}) == 1
    method = f"{SERVICE}/Echo"
    assert tree(finished) == [
        (f"CLIENT {method}", ""),
        (f"CLIENT {method}", "echo.pass"),
        ("INTERNAL echo.pass", method),
        (f"SERVER {method}", method),
        (f"SERVER {method}", method),
    ]
    [passed] = [each for each in finished if each.name == "echo.pass"]
    assert passed.attributes == {"pool.name": "main"}


async def test_the_traceparent_of_a_caller_is_continued(spans: InMemorySpanExporter) -> None:
    async with serve(Echo()) as served:
        client = await served.client()
        metadata = (*client._metadata(), ("traceparent", PARENT))
        await EchoStub(client.channel).Echo(text(""), metadata=metadata)
    [server_span] = spans.get_finished_spans()
    assert f"{server_span.context.trace_id:032x}" == PARENT[3:35]
    assert f"{server_span.parent.span_id:016x}" == PARENT[36:52]


async def test_an_expected_failure_fails_its_span_and_is_seen_by_the_caller_unchanged(
    spans: InMemorySpanExporter,
) -> None:
    async def missing(_text: str, _context: object) -> str:
        raise NotFound("LEASE_NOT_FOUND", "There is no such lease.")

    async with serve(Echo(missing)) as served:
        with pytest.raises(NotFound):
            await ask(await served.client())
    assert {each.status.status_code.name for each in spans.get_finished_spans()} == {"ERROR"}


def test_background_work_links_to_what_caused_it(spans: InMemorySpanExporter) -> None:
    with span("scheduler.plan", links=[PARENT, "", "nonsense"]):
        inside = current_traceparent()
    with span("lease.start", parent=PARENT):
        assert current_trace_id() == PARENT[3:35]
    planned, started = spans.get_finished_spans()
    assert [f"{link.context.trace_id:032x}" for link in planned.links] == [PARENT[3:35]]
    assert f"{planned.context.trace_id:032x}" == inside[3:35] != PARENT[3:35]
    assert f"{started.context.trace_id:032x}" == PARENT[3:35]


def test_without_an_exporter_a_parent_is_still_passed_on() -> None:
    assert current_traceparent() == ""
    with span("lease.start", parent=PARENT, lease="x") as silent:
        silent.set_attribute("count", 1)
        assert current_traceparent() == PARENT
        with span("lease.step"):
            assert current_traceparent() == PARENT
    assert current_traceparent() == ""


def test_without_an_exporter_a_span_costs_microseconds() -> None:
    started = time.process_time()
    for _ in range(20_000):
        with span("scheduler.plan", pool="main"):
            pass
    assert (time.process_time() - started) / 20_000 < 20e-6


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        (PARENT, True),
        (None, False),
        ("", False),
        (PARENT.upper(), False),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", False),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", False),
        (PARENT + "-x", False),
    ],
)
def test_only_w3c_traceparents_are_taken(given: str | None, valid: bool) -> None:
    assert valid_traceparent(given) is valid


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps what an exporter sends."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    async def Export(self, request, context):
        for resource in request.resource_spans:
            [service] = [
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            ]
            for scope in resource.scope_spans:
                self.names += [(service, each.name) for each in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    server = grpc.aio.server()
    kept = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(kept, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield kept, f"http://127.0.0.1:{port}"
    await server.stop(None)


async def test_spans_reach_an_otlp_collector(collector: tuple[Collector, str]) -> None:
    kept, endpoint = collector
    configure_tracing("echo", endpoint, version="1.0")
    try:
        async with serve(Echo()) as served:
            await ask(await served.client())
    finally:
        await asyncio.to_thread(shutdown_tracing)
    assert kept.names == [("tenure-echo", f"{SERVICE}/Echo")] * 2


async def test_a_collector_that_is_away_disturbs_nothing() -> None:
    configure_tracing("echo", "http://127.0.0.1:1")
    try:
        async with serve(Echo()) as served:
            assert await ask(await served.client(), "x") == "x"
    finally:
        started = time.monotonic()
        await asyncio.to_thread(shutdown_tracing)
    assert time.monotonic() - started < 20


def test_work_on_many_requests_shows_in_the_trace_of_each(spans: InMemorySpanExporter) -> None:
    other = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01"
    with span("plan.commit"), span_in_each("group.commit") as note:
        note(PARENT, group="a")
        note(other, group="b")
        note("", group="of no trace")
    first, second, whole = spans.get_finished_spans()
    assert [f"{each.context.trace_id:032x}" for each in (first, second)] == [
        PARENT[3:35],
        other[3:35],
    ]
    assert f"{first.parent.span_id:016x}" == PARENT[36:52]
    assert first.attributes == {"group": "a"}
    assert [link.context.span_id for link in first.links] == [whole.context.span_id]
    assert whole.start_time <= first.start_time <= first.end_time <= whole.end_time


def test_a_failure_shows_in_the_trace_of_each(spans: InMemorySpanExporter) -> None:
    with suppress(NotFound), span_in_each("group.commit") as note:
        note(PARENT)
        raise NotFound("GONE", "It is gone.")
    [part] = spans.get_finished_spans()
    assert not part.status.is_ok


def test_many_traces_cost_nothing_when_nobody_listens() -> None:
    with span_in_each("group.commit") as note:
        note(PARENT, group="a")


UNRECORDED = PARENT[:-2] + "00"


def test_who_began_a_trace_decided_whether_it_is_recorded(spans: InMemorySpanExporter) -> None:
    with span("lease.start", parent=UNRECORDED), span("lease.step"), span_in_each("a.part") as note:
        note(UNRECORDED)
        assert current_traceparent() == UNRECORDED
    assert spans.get_finished_spans() == ()


def test_a_trace_that_is_not_chosen_stays_so_in_all_that_is_below_it() -> None:
    kept = InMemorySpanExporter()
    use_sinks(OtlpSink(SimpleSpanProcessor(kept)), sampler=Sampler(ratio=0.0))
    try:
        with span("loop.run"), span("loop.step"):
            assert current_traceparent().endswith("-00")
        assert copy_context().run(adopt, None).endswith("-00")
    finally:
        use_sinks()
    assert kept.get_finished_spans() == ()


def test_only_so_many_traces_begin_in_a_second() -> None:
    now = [0.0]
    sampler = Sampler(per_s=2, monotonic=lambda: now[0])
    chosen = [sampler.chooses() for _ in range(3)]
    now[0] = 0.5
    chosen += [sampler.chooses(), sampler.chooses()]
    assert chosen == [True, True, False, True, False]


def test_a_call_without_a_trace_begins_one_that_its_log_lines_name(
    spans: InMemorySpanExporter,
) -> None:
    def serve_one() -> str:
        begun = adopt("")
        with span("echo.Echo", kind="server"):
            return begun

    begun = copy_context().run(serve_one)
    [root] = spans.get_finished_spans()
    assert root.parent is None
    assert f"00-{root.context.trace_id:032x}-{root.context.span_id:016x}-01" == begun


def test_the_trace_around_a_program_is_taken_from_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRACEPARENT", PARENT)
    assert outer_traceparent() == PARENT
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    assert outer_traceparent() == ""


def test_a_failure_is_told_by_type_and_reason_and_never_by_its_text(
    spans: InMemorySpanExporter,
) -> None:
    with suppress(NotFound), span("lease.read"):
        raise NotFound("LEASE_NOT_FOUND", "password=hunter2")
    with suppress(ValueError), span("lease.read"):
        raise ValueError("hunter2")
    said = [each.status.description for each in spans.get_finished_spans()]
    assert said == ["NotFound LEASE_NOT_FOUND", "ValueError"]


def test_a_span_names_a_bounded_number_of_what_it_touched(spans: InMemorySpanExporter) -> None:
    with span("plan.commit"), span_in_each("a.part") as note:
        for _ in range(LINKS_MAX + 5):
            note(PARENT, name="x" * (TEXT_MAX + 5))
    *parts, whole = spans.get_finished_spans()
    assert len(whole.links) == LINKS_MAX
    assert {len(part.attributes["name"]) for part in parts} == {TEXT_MAX}
