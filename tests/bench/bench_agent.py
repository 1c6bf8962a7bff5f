"""What one agent costs: null leases a second, processor time each, and latency of a start.

    .venv/bin/python tests/bench/bench_agent.py [--agents 1] [--leases 1000] [--window 32]
        [--limited]

A fake registry in this process sends START commands for `/bin/true` over real gRPC, keeping a
window of them under way; the agent, its warm process and its guardians are real. Their processor
time is read from a cgroup of their own (as root, v1 or v2): everything that the agent ever forked,
work included. Without one only the agent's own is shown.

Reached when written, other work on the same two cores: see docs/adr/0082.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.support.agents import agent
from tests.support.fake_registry import FakeRegistry, Script, registry

from tenure.registry.v1.agent_pb2 import Report

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def _cpu_s(pid: int) -> float:
    """Return the processor time of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) * _TICK_S


class _Account:
    """A cgroup that adds up the processor time of processes and of all that comes of them."""

    def __init__(self) -> None:
        name = f"tenure-bench-{os.getpid()}"
        self._folder: Path | None = None
        for root in ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"):
            folder = Path(root) / name
            try:
                folder.mkdir()
            except OSError:
                continue
            if (folder / "cgroup.procs").exists():
                self._folder = folder
                return
            folder.rmdir()

    def add(self, pid: int) -> None:
        """Count a process, and what it forks from now on."""
        if self._folder is not None:
            (self._folder / "cgroup.procs").write_text(str(pid))

    def used_s(self) -> float | None:
        """Return the time used so far, None when the system gives us no account."""
        if self._folder is None:
            return None
        v1, v2 = self._folder / "cpuacct.usage", self._folder / "cpu.stat"
        if v1.exists():
            return int(v1.read_text()) / 1e9
        return int(v2.read_text().split()[1]) / 1e6 if v2.exists() else None

    def close(self) -> None:
        """Remove the group once its processes have ended."""
        for _ in range(100):
            try:
                if self._folder is not None:
                    self._folder.rmdir()
            except OSError:
                time.sleep(0.05)
            else:
                return


def _children(pid: int) -> list[int]:
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def _run(fake: FakeRegistry, leases: int, window: int, amounts: dict[str, int]) -> None:
    """Run null leases on one agent, `window` at once."""
    sent = ended = seen = 0
    while ended < leases:
        while sent < leases and sent - ended < window:
            fake.start(f"lease{sent}", "/bin/true", amounts=amounts)
            sent += 1
        await fake.until(lambda seen=seen: len(fake.reports) > seen)
        ended += sum(r.kind == Report.KIND_ENDED for r in fake.reports[seen:])
        seen = len(fake.reports)
    assert all(r.exit_code == 0 for r in fake.reports if r.kind == Report.KIND_ENDED)


async def _throughput(agents: int, leases: int, window: int, amounts: dict[str, int]) -> None:
    account = _Account()
    async with AsyncExitStack() as stack:
        pairs = []
        for _ in range(agents):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            fake = await stack.enter_async_context(registry(Script(period_ms=1_000)))
            pairs.append((fake, await stack.enter_async_context(agent(folder, fake.address))))
        for fake, process in pairs:
            await fake.connected()
            await fake.until(lambda fake=fake: fake.beats > 1)
            for pid in (process.pid, *_children(process.pid)):
                account.add(pid)
        began, own = time.perf_counter(), time.process_time()
        agent_before, all_before = sum(_cpu_s(p.pid) for _, p in pairs), account.used_s()
        async with asyncio.TaskGroup() as group:
            for fake, _ in pairs:
                share = (leases // agents, max(1, window // agents))
                group.create_task(_run(fake, *share, amounts))
        seconds = time.perf_counter() - began
        own_ms = 1_000 * (time.process_time() - own) / leases
        agent_ms = 1_000 * (sum(_cpu_s(p.pid) for _, p in pairs) - agent_before) / leases
        all_after = account.used_s()
    account.close()
    print(
        f"{leases} null leases on {agents} agents, {window} at once: {leases / seconds:.0f}/s; "
        f"CPU a lease: agent {agent_ms:.2f} ms, fake registry {own_ms:.2f} ms"
    )
    if all_before is not None and all_after is not None:
        total_ms = 1_000 * (all_after - all_before) / leases
        print(f"agent, warm process, guardians and work together: {total_ms:.2f} ms of CPU a lease")


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
    parser.add_argument("--agents", type=int, default=1)
    parser.add_argument("--leases", type=int, default=1_000)
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--limited", action="store_true", help="give each cpu and memory")
    options = parser.parse_args()
    amounts = {"cpu": 1_000, "memory": 1 << 28} if options.limited else {}
    asyncio.run(_throughput(options.agents, options.leases, options.window, amounts))
    asyncio.run(_latency(100))


if __name__ == "__main__":
    main()
