"""Null leases through the whole suite: how many a second, and how soon one runs.

    python -m tests.bench.bench_suite [--leases 6000] [--agents 16] [--single 100]

A null lease is a fork and exec of `true` whose exit code is recorded. Everything runs on this
machine: PostgreSQL with its durable flushes, etcd where it is installed, five services, the agents,
and this client. The baseline beside it is the cost that no scheduler can avoid here: forking and
reaping the same number of processes, one after another, from this process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure.type.v1 import work_pb2
from tenure_cli.embedded.forgetting import forget
from tenure_cli.embedded.suite import Suite, SuiteOptions
from tenure_runtime.embedded.log_stream import LogStream
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.client import Client, connect

ENDED = {
    lpb.Lease.STATE_DONE,
    lpb.Lease.STATE_FAILED,
    lpb.Lease.STATE_CANCELLED,
    lpb.Lease.STATE_REJECTED,
}
BATCH = 500


def null_lease() -> lpb.Lease:
    lease = lpb.Lease(
        terms=lpb.Terms(best_effort=lpb.BestEffortTerms()),
        node_count=1,
        amounts={"cpu": 1_000},
        work=work_pb2.Work(command=["/bin/true"]),
    )
    lease.duration.FromSeconds(60)
    return lease


async def throughput(client: Client, count: int) -> tuple[float, float, dict[str, int]]:
    """Submit `count` null leases; return seconds to submit, seconds to the last end, and ends."""
    stub = AdmissionServiceStub(client.channel)
    token = (await client.call(stub.ListLeases, apb.ListLeasesRequest(page_size=1))).resume_token
    ends: dict[str, int] = {}
    mine: set[str] = set()

    async def follow() -> None:
        request = apb.WatchLeasesRequest(resume_token=token)
        async with client.stream(stub.WatchLeases, request) as changes:
            async for change in changes:
                if change.lease.state in ENDED:
                    ends[change.lease.name] = change.lease.state
                if mine and mine <= ends.keys():
                    return

    following = asyncio.create_task(follow())
    began = time.perf_counter()
    names: list[str] = []
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        request = apb.BatchCreateLeasesRequest(
            requests=[apb.CreateLeaseRequest(lease=null_lease()) for _ in range(size)],
            request_id=RandomIds().request_id(),
        )
        answer = await client.call(stub.BatchCreateLeases, request, timeout_s=60)
        names += [result.lease.name for result in answer.results]
    submitted = time.perf_counter() - began
    mine.update(names)
    await following
    elapsed = time.perf_counter() - began
    states = [lpb.Lease.State.Name(ends[name]) for name in names]
    return submitted, elapsed, {state: states.count(state) for state in sorted(set(states))}


async def latencies(client: Client, count: int) -> list[float]:
    """Create leases one by one; return the seconds from the acknowledgement to ACTIVE or an end."""
    stub = AdmissionServiceStub(client.channel)
    found = []
    for _ in range(count):
        lease = null_lease()
        lease.work.command[:] = ["/bin/sleep", "0.3"]
        created = await client.call(stub.CreateLease, apb.CreateLeaseRequest(lease=lease))
        acknowledged = time.perf_counter()
        wait = apb.WaitLeaseRequest(name=created.lease.name, states=[lpb.Lease.STATE_ACTIVE])
        await client.call(stub.WaitLease, wait, timeout_s=70)
        found.append(time.perf_counter() - acknowledged)
        await asyncio.sleep(0.4)
    return found


def starts_in_trails(data: Path) -> dict[str, float]:
    """Return when each lease's process was started, in wall seconds, from the agents' trails."""
    found = {}
    for trail in data.glob("agents/*/trail.jsonl"):
        for line in trail.read_text().splitlines():
            entry = json.loads(line)
            if entry["event"] == "start":
                found[entry["lease"]] = entry["wall_ns"] / 1e9
    return found


def baseline(count: int) -> float:
    """Return the seconds to fork, exec and reap `true` so often, one after another."""
    began = time.perf_counter()
    for _ in range(count):
        subprocess.run(["/bin/true"], check=True)
    return time.perf_counter() - began


def processor_seconds(suite: Suite) -> dict[str, float]:
    """Return the processor time used so far by the suite's parts, their dead children included."""
    used: dict[str, float] = {}
    parts = {child.name: child.pid for child in suite.processes.status()}
    parts["postgres"] = suite.postgres.pid if suite.postgres else None
    parts["etcd"] = suite.etcd.pid if suite.etcd else None
    for name, pid in parts.items():
        if pid is None:
            continue
        group = "agents" if name.startswith("agent-") else name
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = each.cpu_times()
                spent = times.user + times.system + times.children_user + times.children_system
                used[group] = used.get(group, 0.0) + spent
    own = psutil.Process().cpu_times()
    used["this client"] = own.user + own.system
    return used


async def measure(options: argparse.Namespace, data: Path) -> None:
    capacity = f"cpu={options.slots},memory=8Gi"
    suite = Suite(
        SuiteOptions(data, agents=options.agents, agent_capacity=capacity, log_form="json"),
        LogStream(None),
    )
    await suite.start()
    try:
        async with connect(
            suite.state.address("admission"),
            api_key=suite.keys.read("operator"),
            tls=suite.tls("operator"),
        ) as client:
            await throughput(client, 50)
            await asyncio.sleep(1)
            if options.single:
                waits = await latencies(client, options.single)
                waits.sort()
                print(
                    f"acknowledged → seen running, idle suite, {len(waits)} leases: median "
                    f"{1e3 * statistics.median(waits):.0f} ms, "
                    f"p95 {1e3 * waits[int(0.95 * len(waits))]:.0f} ms"
                )
            before = processor_seconds(suite)
            submitted, elapsed, states = await throughput(client, options.leases)
            after = processor_seconds(suite)
        alone = baseline(options.leases)
        rate = options.leases / elapsed
        print(
            f"{options.leases} null leases on {options.agents} agents of {options.slots} slots: "
            f"submitted in {submitted:.1f} s, all ended and recorded in {elapsed:.1f} s = "
            f"{rate:.0f}/s {states}"
        )
        spent = {name: after[name] - before.get(name, 0.0) for name in after}
        shares = ", ".join(
            f"{name} {1e3 * seconds / options.leases:.2f}"
            for name, seconds in sorted(spent.items(), key=lambda item: -item[1])
        )
        total = 1e3 * sum(spent.values()) / options.leases
        print(f"processor time a lease, ms: {total:.2f} in all; {shares}")
        print(
            f"baseline, fork/exec/reap alone: {options.leases / alone:.0f}/s; "
            f"ratio {rate / (options.leases / alone):.3f}"
        )
    finally:
        await suite.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=6_000)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--single", type=int, default=30)
    options = parser.parse_args()
    data = Path(tempfile.mkdtemp(prefix="tenure-bench-"))
    try:
        asyncio.run(measure(options, data))
    finally:
        asyncio.run(forget(data))


if __name__ == "__main__":
    main()
