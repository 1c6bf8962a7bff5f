"""What tracing costs: CPU per CreateLease, admission and PostgreSQL together, as paired ratios.

    python -m tests.bench.bench_tracing [--pairs 12] [--seconds 2] [--callers 32]

One PostgreSQL and four admissions on databases of their own: without tracing, with 1 % of the
traces sent to a collector, with 1 % stored in a file, and with the store as `tenure up` has it.
They are driven in turns, so that each ratio is of two runs side by side; the median and the
quartiles of the ratios are printed. The driver's own CPU is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from tests.bench.bench_create_lease import cpu_s, family_cpu_s, singles

from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.rpc.client import connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Takes spans and counts them."""

    def __init__(self) -> None:
        self.spans = 0

    async def Export(self, request: Any, context: Any) -> Any:
        """Count the spans of a batch."""
        self.spans += sum(
            len(scope.spans) for each in request.resource_spans for scope in each.scope_spans
        )
        return trace_service_pb2.ExportTraceServiceResponse()


@asynccontextmanager
async def admission(
    folder: Path, name: str, dsn: str, settings: dict[str, str]
) -> AsyncIterator[tuple[int, str]]:
    """Run one admission; yields its process id and its address."""
    ready = folder / f"{name}.json"
    given = {
        "TENURE_DATABASE_DSN": dsn,
        "TENURE_KEYRING_FILE": str(folder / "keyring.json"),
        "TENURE_READY_FILE": str(ready),
        "TENURE_LOG_LEVEL": "warning",
        **settings,
    }
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tenure_admission", env={**os.environ, **given}
    )
    try:
        while not ready.exists():
            assert server.returncode is None, "admission did not start"
            await asyncio.sleep(0.05)
        yield server.pid, f"127.0.0.1:{json.loads(ready.read_text())['port']}"
    finally:
        server.terminate()
        await server.wait()


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--callers", type=int, default=32)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tenure-bench-", dir="/tmp"))
    key, entry = create_key("user", {Role.USER})
    Keyring([entry]).store(folder / "keyring.json")
    postgres, collector, collecting = (
        EmbeddedPostgres(folder / "pg"),
        Collector(),
        grpc.aio.server(),
    )
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, collecting)
    endpoint = f"http://127.0.0.1:{collecting.add_insecure_port('127.0.0.1:0')}"
    store = str(folder / "traces.sqlite")
    variants = {
        "off": {},
        "otlp 1 %": {"TENURE_OTLP_ENDPOINT": endpoint, "TENURE_TRACE_RATIO": "0.01"},
        "store 1 %": {"TENURE_TRACE_STORE": store, "TENURE_TRACE_RATIO": "0.01"},
        "as `tenure up`": {"TENURE_TRACE_STORE": store},
    }
    costs: dict[str, list[float]] = {name: [] for name in variants}
    try:
        await collecting.start()
        await postgres.start()
        assert postgres.pid is not None
        async with AsyncExitStack() as stack:
            driven = {}
            for number, (name, settings) in enumerate(variants.items()):
                dsn = await postgres.ensure_database(f"bench{number}")
                pid, address = await stack.enter_async_context(
                    admission(folder, f"a{number}", dsn, settings)
                )
                client = await stack.enter_async_context(connect(address, api_key=key))
                await singles(client, arguments.callers, 1.0)
                driven[name] = (pid, client)
            for turn in range(arguments.pairs):
                names = list(driven) if turn % 2 == 0 else list(driven)[::-1]
                for name in names:
                    pid, client = driven[name]
                    before = cpu_s(pid) + family_cpu_s(postgres.pid)
                    calls = len(await singles(client, arguments.callers, arguments.seconds))
                    used_s = cpu_s(pid) + family_cpu_s(postgres.pid) - before
                    costs[name].append(used_s / calls * 1e6)
        await collecting.stop(None)
    finally:
        await postgres.destroy()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"cpu per CreateLease without tracing: {statistics.median(costs['off']):.0f} us")
    for name in list(variants)[1:]:
        ratios = [ours / off for ours, off in zip(costs[name], costs["off"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{name:15} {middle:.3f} of that (quartiles {low:.3f} to {high:.3f})")
    print(f"{collector.spans} spans reached the collector")


if __name__ == "__main__":
    asyncio.run(main())
