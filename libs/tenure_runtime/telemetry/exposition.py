"""Shows the metrics of a process in the Prometheus text format, over HTTP where it is asked for.

Decides names on the outside: `tenure_<name>_total`, `tenure_<name>`, `tenure_<name>_seconds`. What
is measured is left to the declarations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tenure_runtime.telemetry.instruments import (
    Buckets,
    Counter,
    Gauge,
    Histogram,
    declared,
    observe,
)

_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_REQUEST_TIMEOUT_S: Final = 5.0


def exposition() -> str:
    """Return all metrics of this process as Prometheus reads them."""
    observe()
    return "".join(line + "\n" for each in declared() for line in _lines(each))


def _lines(instrument: Counter | Gauge | Histogram) -> Iterator[str]:
    name, kind = f"tenure_{instrument.name}", "gauge"
    if isinstance(instrument, Counter):
        name, kind = f"{name}_total", "counter"
    elif isinstance(instrument, Histogram):
        name, kind = f"{name}_seconds", "histogram"
    yield f"# HELP {name} {instrument.meaning}."
    yield f"# TYPE {name} {kind}"
    for labels, value in sorted(instrument.values.items(), key=lambda item: item[0]):
        pairs = list(zip(instrument.labels, labels, strict=True))
        if isinstance(value, Buckets) and isinstance(instrument, Histogram):
            yield from _buckets(name, pairs, instrument.bounds_ms, value)
        else:
            yield f"{name}{_labels(pairs)} {value:.12g}"


def _buckets(
    name: str, pairs: list[tuple[str, str]], bounds_ms: Sequence[float], value: Buckets
) -> Iterator[str]:
    running = 0
    for bound_ms, count in zip(bounds_ms, value.counts, strict=False):
        running += count
        yield f"{name}_bucket{_labels([*pairs, ('le', f'{bound_ms / 1_000:g}')])} {running}"
    yield f"{name}_bucket{_labels([*pairs, ('le', '+Inf')])} {value.count}"
    yield f"{name}_sum{_labels(pairs)} {value.total / 1_000:.9g}"
    yield f"{name}_count{_labels(pairs)} {value.count}"


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
                status, body = "200 OK", exposition().encode()
            else:
                status, body = "404 Not Found", b"metrics are at /metrics\n"
            head = f"HTTP/1.1 {status}\r\nContent-Type: {_TYPE}\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    finally:
        writer.close()
