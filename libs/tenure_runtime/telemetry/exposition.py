"""Shows the metrics of a process as Prometheus reads them, over HTTP where it is asked for.

Decides names on the outside: `tenure_<name>_total`, `tenure_<name>`, `tenure_<name>_seconds`; and
that exemplars are shown to who asks for OpenMetrics. What is measured is left to the declarations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tenure_runtime.telemetry.instruments import (
    Buckets,
    Counter,
    Exemplar,
    Gauge,
    Histogram,
    declared,
    observe,
)

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPEN_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_REQUEST_TIMEOUT_S: Final = 5.0


def exposition(*, open_metrics: bool = False) -> str:
    """Return all metrics of this process for Prometheus; as OpenMetrics with exemplars."""
    observe()
    text = "".join(line + "\n" for each in declared() for line in _lines(each, open_metrics))
    return f"{text}# EOF\n" if open_metrics else text


def _lines(instrument: Counter | Gauge | Histogram, open_metrics: bool) -> Iterator[str]:
    name, kind = f"tenure_{instrument.name}", "gauge"
    family = name
    if isinstance(instrument, Counter):
        name, kind = f"{name}_total", "counter"
    elif isinstance(instrument, Histogram):
        name = family = f"{name}_seconds"
        kind = "histogram"
    # OpenMetrics names the family of a counter without what its samples end in.
    family = family if open_metrics else name
    yield f"# HELP {family} {instrument.meaning}."
    yield f"# TYPE {family} {kind}"
    for labels, value in sorted(instrument.values.items(), key=lambda item: item[0]):
        pairs = list(zip(instrument.labels, labels, strict=True))
        if isinstance(value, Buckets) and isinstance(instrument, Histogram):
            yield from _buckets(name, pairs, instrument.bounds_ms, value, open_metrics)
        else:
            yield f"{name}{_labels(pairs)} {value:.12g}"


def _buckets(
    name: str,
    pairs: list[tuple[str, str]],
    bounds_ms: Sequence[float],
    value: Buckets,
    open_metrics: bool,
) -> Iterator[str]:
    running = 0
    bounds = [*(f"{bound_ms / 1_000:g}" for bound_ms in bounds_ms), "+Inf"]
    for index, (bound, count) in enumerate(zip(bounds, value.counts, strict=True)):
        running += count
        exemplar = value.exemplars.get(index) if open_metrics else None
        shown = _exemplar(exemplar) if exemplar is not None else ""
        yield f"{name}_bucket{_labels([*pairs, ('le', bound)])} {running}{shown}"
    yield f"{name}_sum{_labels(pairs)} {value.total / 1_000:.9g}"
    yield f"{name}_count{_labels(pairs)} {value.count}"


def _exemplar(exemplar: Exemplar) -> str:
    trace = exemplar.traceparent[3:35]
    return f' # {{trace_id="{trace}"}} {exemplar.value_ms / 1_000:.9g} {exemplar.at_ns / 1e9:.3f}'


def _labels(pairs: list[tuple[str, str]]) -> str:
    escaped = (
        (key, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for key, value in pairs
    )
    text = ",".join(f'{key}="{value}"' for key, value in escaped)
    return f"{{{text}}}" if text else ""


@asynccontextmanager
async def serving_metrics(listen: str | None) -> AsyncIterator[int | None]:
    """Serve GET /metrics on host:port while the block runs; yields the port, None without one."""
    if listen is None:
        yield None
        return
    host, _, port = listen.rpartition(":")
    server = await asyncio.start_server(_answer, host, int(port), limit=16_384)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            request = await reader.readuntil(b"\r\n\r\n")
            if request.startswith((b"GET /metrics ", b"GET /metrics?")):
                wants_open = b"application/openmetrics-text" in request
                form = _OPEN_TYPE if wants_open else _TYPE
                status, body = "200 OK", exposition(open_metrics=wants_open).encode()
            else:
                form = "text/plain"
                status, body = "404 Not Found", b"metrics are at /metrics\n"
            head = f"HTTP/1.1 {status}\r\nContent-Type: {form}\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()
