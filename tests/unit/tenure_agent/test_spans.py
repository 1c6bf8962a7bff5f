"""The span of a run is part of the lease's trace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenure_agent.spans import Spans
from tenure_agent.work import Command, Event, Key, Launch, State, Verb
from tenure_runtime.telemetry.otlp import OtlpSink
from tenure_runtime.telemetry.tracing import use_sinks

TRACE, PARENT = "0123456789abcdef0123456789abcdef", "0123456789abcdef"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    use_sinks(OtlpSink(SimpleSpanProcessor(exporter)))
    yield exporter
    use_sinks()


def _command(trace_parent: str) -> Command:
    key = Key("lease1", 1, 0)
    launch = Launch(("true",))
    return Command("c", Verb.START, "pool/p", 1, "s", key, trace_parent=trace_parent, launch=launch)


async def test_a_run_is_a_span_in_the_trace_of_its_lease(exported: InMemorySpanExporter) -> None:
    spans = Spans()
    traceparent = spans.begin(_command(f"00-{TRACE}-{PARENT}-01"))
    await asyncio.sleep(0)
    spans.end(Event(Key("lease1", 1, 0), State.ENDED, 5, 3, "EXITED"))
    await asyncio.sleep(0.01)
    start, run = exported.get_finished_spans()

    assert [f"{s.context.trace_id:032x}" for s in (start, run)] == [TRACE, TRACE]
    assert (start.name, run.name) == ("agent.start", "agent.run")
    assert f"{start.parent.span_id:016x}" == PARENT
    assert run.parent.span_id == start.context.span_id
    assert run.attributes["process.exit.code"] == 3
    assert traceparent == f"00-{TRACE}-{start.context.span_id:016x}-01"


async def test_without_a_trace_there_is_no_span(exported: InMemorySpanExporter) -> None:
    spans = Spans()

    assert spans.begin(_command("")) == ""
    assert exported.get_finished_spans() == ()
