"""What one agent costs: null leases a second, processor time each, and latency of a start.

    .venv/bin/python tests/bench/bench_agent.py [--leases 1000] [--window 32]

A fake registry in this process sends START commands for `/bin/true` over real gRPC, keeping a
window of them under way; the agent, its warm process and its guardians are real. The processor time
of guardians and work is not added to anyone's account (the kernel reaps guardians), so what the
whole machine used is given beside the agent's own: on a quiet machine that is the cost.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from tests.support.agents import agent
from tests.support.fake_registry import registry

from tenure.registry.v1.agent_pb2 import Report

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) * _TICK_S


def _machine_busy_s() -> float:
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) * _TICK_S


async def _throughput(leases: int, window: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with registry() as fake, agent(Path(folder), fake.address) as process:
            await fake.connected()
            await fake.until(lambda: fake.beats > 1)
            began, own, busy = time.perf_counter(), time.process_time(), _machine_busy_s()
            agent_before = _cpu_s(process.pid)
            sent = 0
            ended = 0
            while ended < leases:
                while sent < leases and sent - ended < window:
                    fake.start(f"lease{sent}", "/bin/true")
                    sent += 1
                seen = len(fake.reports)
                await fake.until(lambda seen=seen: len(fake.reports) > seen)
                ended = sum(r.kind == Report.KIND_ENDED for r in fake.reports)
            seconds = time.perf_counter() - began
            own_s = time.process_time() - own
            busy_s = _machine_busy_s() - busy - own_s
            agent_s = _cpu_s(process.pid) - agent_before
            assert all(r.exit_code == 0 for r in fake.reports if r.kind == Report.KIND_ENDED)
            print(
                f"{leases} null leases, {window} at once: {leases / seconds:.0f}/s; "
                f"{1_000 * agent_s / leases:.2f} ms of CPU a lease in the agent, "
                f"{1_000 * busy_s / leases:.2f} ms on the machine without this bench "
                f"(an upper bound: others' work counts); bench itself {1_000 * own_s / leases:.2f}"
            )


async def _latency(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with registry() as fake, agent(Path(folder), fake.address) as process:
            await fake.connected()
            await fake.until(lambda: fake.beats > 1)
            delays_ms, reported_ms = [], []
            for number in range(count):
                sent_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                fake.start(f"lease{number}", "/bin/true")
                await fake.report(Report.KIND_STARTED, f"lease{number}")
                reported_ms.append((time.clock_gettime_ns(time.CLOCK_BOOTTIME) - sent_ns) / 1e6)
                line = next(
                    x
                    for x in reversed(process.trail())
                    if x["event"] == "start" and x["lease"] == f"lease{number}"
                )
                delays_ms.append((line["boot_ns"] - sent_ns) / 1e6)
                await fake.report(Report.KIND_ENDED, f"lease{number}")
            print(
                f"command sent → process running: median {statistics.median(delays_ms):.1f} ms, "
                f"p95 {sorted(delays_ms)[int(count * 0.95)]:.1f}; → STARTED received: median "
                f"{statistics.median(reported_ms):.1f} ms"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=1_000)
    parser.add_argument("--window", type=int, default=32)
    options = parser.parse_args()
    asyncio.run(_throughput(options.leases, options.window))
    asyncio.run(_latency(100))


if __name__ == "__main__":
    main()
