"""Metrics as Prometheus reads them."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.support import echo
from tests.support.echo import METHODS, SERVICE, Echo, EchoStub, text
from tests.support.servers import serving

from tenure_runtime.process import measuring_lag
from tenure_runtime.telemetry import instruments, metrics
from tenure_runtime.telemetry.exposition import exposition, serving_metrics
from tenure_runtime.telemetry.metrics import Counter, Gauge, Histogram


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
