"""Metrics as Prometheus reads them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import copy_context

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb_metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as grpc_metrics
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import serving

from tenure_runtime.process import measuring_lag, sending_metrics
from tenure_runtime.telemetry import instruments, metrics
from tenure_runtime.telemetry.exposition import exposition, serving_metrics
from tenure_runtime.telemetry.metrics import Counter, Gauge, Histogram
from tenure_runtime.telemetry.tracing import adopt, use_sinks


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "_DECLARED", [])


def test_each_kind_has_its_form(alone: None) -> None:
    counter = Counter("commands_sent", "1", "Commands sent", ("kind",))
    counter.add(2, "start")
    counter.add(1, 'a"b\\c\n')
    Gauge("queue_length", "1", "Leases that wait", ()).set(7)
    histogram = Histogram("cycle", "Time of a cycle", ())
    for value_ms in (0.5, 1.0, 3.0, 99_000.0):
        histogram.record(value_ms)
    assert exposition() == (
        "# HELP tenure_commands_sent_total Commands sent.\n"
        "# TYPE tenure_commands_sent_total counter\n"
        'tenure_commands_sent_total{kind="a\\"b\\\\c\\n"} 1\n'
        'tenure_commands_sent_total{kind="start"} 2\n'
        "# HELP tenure_queue_length Leases that wait.\n"
        "# TYPE tenure_queue_length gauge\n"
        "tenure_queue_length 7\n"
        "# HELP tenure_cycle_seconds Time of a cycle.\n"
        "# TYPE tenure_cycle_seconds histogram\n"
        'tenure_cycle_seconds_bucket{le="0.001"} 2\n'
        'tenure_cycle_seconds_bucket{le="0.0025"} 2\n'
        'tenure_cycle_seconds_bucket{le="0.005"} 3\n'
        'tenure_cycle_seconds_bucket{le="0.01"} 3\n'
        'tenure_cycle_seconds_bucket{le="0.025"} 3\n'
        'tenure_cycle_seconds_bucket{le="0.05"} 3\n'
        'tenure_cycle_seconds_bucket{le="0.1"} 3\n'
        'tenure_cycle_seconds_bucket{le="0.25"} 3\n'
        'tenure_cycle_seconds_bucket{le="0.5"} 3\n'
        'tenure_cycle_seconds_bucket{le="1"} 3\n'
        'tenure_cycle_seconds_bucket{le="5"} 3\n'
        'tenure_cycle_seconds_bucket{le="+Inf"} 4\n'
        "tenure_cycle_seconds_sum 99.0045\n"
        "tenure_cycle_seconds_count 4\n"
    )


def record_in(trace: str, flags: str, histogram: Histogram, value_ms: float) -> None:
    """Record a value within a trace."""

    def record() -> None:
        adopt(f"00-{trace * 16}-{'cd' * 8}-{flags}")
        histogram.record(value_ms, "a")

    copy_context().run(record)


def test_exemplars_lead_from_a_bucket_to_a_recorded_trace(alone: None) -> None:
    """Only in OpenMetrics: the older form has no place for them."""
    histogram = Histogram("cycle", "Time of a cycle", ("pool",), (10.0, 100.0))
    use_sinks(lambda _: None)
    record_in("ab", "01", histogram, 50.0)
    record_in("ef", "00", histogram, 5.0)
    use_sinks()
    record_in("ef", "01", histogram, 500.0)
    Counter("commands_sent", "1", "Commands sent", ()).add(2)

    lines = exposition(open_metrics=True).splitlines()
    shown = [line for line in lines if " # " in line[1:]]
    assert "# TYPE tenure_commands_sent counter" in lines
    assert "tenure_commands_sent_total 2" in lines
    assert lines[-1] == "# EOF"
    assert [re.sub(r"[0-9.]+$", "AT", line) for line in shown] == [
        f'tenure_cycle_seconds_bucket{{pool="a",le="0.1"}} 2 # {{trace_id="{"ab" * 16}"}} 0.05 AT'
    ]
    assert " # " not in exposition().replace("\n# ", "")


async def test_metrics_are_sent_to_an_otlp_collector(alone: None) -> None:
    Counter("commands_sent", "1", "Commands sent", ("kind",)).add(2, "start")
    Gauge("queue_length", "1", "Leases that wait", ()).set(7)
    histogram = Histogram("cycle", "Time of a cycle", ("pool",), (10.0, 100.0))
    use_sinks(lambda _: None)
    record_in("ab", "01", histogram, 50.0)
    use_sinks()
    async with (
        collecting() as (collector, port),
        sending_metrics(f"http://127.0.0.1:{port}", "admission", "1"),
    ):
        pass

    [sent] = collector.requests[-1].resource_metrics
    facts = {each.key: each.value.string_value for each in sent.resource.attributes}
    counter, gauge, spread = sent.scope_metrics[0].metrics
    [point] = spread.histogram.data_points
    assert facts["service.name"] == "tenure-admission"
    assert (counter.name, counter.sum.is_monotonic) == ("tenure.commands_sent", True)
    assert counter.sum.data_points[0].as_double == 2
    assert counter.sum.data_points[0].attributes[0].value.string_value == "start"
    assert (gauge.name, gauge.gauge.data_points[0].as_double) == ("tenure.queue_length", 7)
    assert (spread.unit, list(point.bucket_counts)) == ("s", [0, 1, 0])
    assert list(point.explicit_bounds) == [0.01, 0.1]
    assert (point.sum, point.exemplars[0].trace_id.hex()) == (0.05, "ab" * 16)


async def test_a_collector_that_is_away_stops_nothing(alone: None) -> None:
    Counter("commands_sent", "1", "Commands sent", ())
    began = time.monotonic()
    async with sending_metrics("http://127.0.0.1:1", "admission", "1"):
        pass
    assert time.monotonic() - began < 30


class Collector(grpc_metrics.MetricsServiceServicer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.requests: list[pb_metrics.ExportMetricsServiceRequest] = []

    async def Export(
        self, request: pb_metrics.ExportMetricsServiceRequest, context: object
    ) -> pb_metrics.ExportMetricsServiceResponse:
        self.requests.append(request)
        return pb_metrics.ExportMetricsServiceResponse()


@asynccontextmanager
async def collecting() -> AsyncIterator[tuple[Collector, int]]:
    collector, server = Collector(), grpc.aio.server()
    grpc_metrics.add_MetricsServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield collector, port
    await server.stop(0)


async def fetch(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_calls_are_counted_and_shown_over_http() -> None:
    async with serving_metrics("127.0.0.1:0") as port:
        assert port is not None
        async with serving(echo.register, Echo(), SERVICE, methods=METHODS) as served:
            client = await served.client()
            await client.call(EchoStub(client.channel).Echo, text(""))
        answer = await fetch(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert f'tenure_rpc_duration_seconds_count{{method="/{SERVICE}/Echo",code="OK"}}' in (
            body.decode()
        )
        asked = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;q=0.9\r\n\r\n"
        answer = await fetch(port, asked)
        assert b"Content-Type: application/openmetrics-text; version=1.0.0" in answer
        assert answer.endswith(b"# EOF\n")
        assert b"404" in await fetch(port, b"GET / HTTP/1.1\r\n\r\n")
        assert await fetch(port, b"x" * 20_000 + b"\r\n\r\n") == b""


async def test_without_a_setting_nothing_is_served() -> None:
    async with serving_metrics(None) as port:
        assert port is None


def test_what_is_known_anyway_is_counted_when_it_is_read(alone: None) -> None:
    gauge = Gauge("queue_length", "1", "Leases that wait", ("pool",))
    with instruments.observed(lambda: gauge.replace({("main",): 3})):
        assert 'tenure_queue_length{pool="main"} 3' in exposition()
        gauge.set(9, "gone")
        assert "gone" not in exposition()
    gauge.replace({})
    assert "{" not in exposition()


def test_a_counter_without_labels_is_shown_before_it_counts(alone: None) -> None:
    Counter("agents_lost", "1", "Agents lost", ())
    assert "tenure_agents_lost_total 0\n" in exposition()


async def test_a_blocked_event_loop_is_late() -> None:
    before = metrics.LOOP_LAG.values.get((), instruments.Buckets([])).total
    async with measuring_lag(True, period_s=0.01):
        await asyncio.sleep(0)
        time.sleep(0.1)
        await asyncio.sleep(0.02)
    assert metrics.LOOP_LAG.values[()].total - before >= 80
