"""How fast leases become durable: CreateLease by 64 callers, BatchCreateLeases, RecordTransitions.

    python -m tests.bench.bench_create_lease [--seconds 8] [--callers 64] [--profile FILE]

Starts a private PostgreSQL (fsync on), one admission process and one client process, all on this
machine; telemetry is off. Prints rates, the CPU time per call of each of the three, and what bounds
the rate: the machine's cores are shared by all three.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure_runtime.clocks import SystemClock
from tenure_runtime.embedded.authority import CertificateCabinet, files_in
from tenure_runtime.embedded.postgres import EmbeddedPostgres
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key
from tenure_runtime.rpc.peer import Peer

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BATCH = 1_000
TRANSITIONS = 500


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process, its ended children included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS_PER_S


def family_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its present children."""
    total = cpu_s(pid)
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            total += cpu_s(int(folder.name)) if parent == pid else 0.0
        except OSError:
            continue
    return total


@dataclass(frozen=True)
class Started:
    """The processes under test."""

    address: str
    keys: dict[str, str]
    server_pid: int
    postgres_pid: int
    tls: Path | None = None


@asynccontextmanager
async def started(
    profile: str | None = None, service: str = "tenure_admission", *, tls: bool = False
) -> AsyncIterator[Started]:
    """Run PostgreSQL and one process of a service, with mutual TLS or in plain text."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-bench-", dir="/tmp"))
    keys, entries = {}, []
    for role in (Role.USER, Role.SERVICE):
        keys[str(role)], entry = create_key(str(role), {role})
        entries.append(entry)
    Keyring(entries).store(folder / "keyring.json")
    postgres = EmbeddedPostgres(folder / "postgres")
    try:
        await postgres.start()
        dsn = await postgres.ensure_database("tenure")
        ready = folder / "ready.json"
        environment = {
            **os.environ,
            "TENURE_DATABASE_DSN": dsn,
            "TENURE_KEYRING_FILE": str(folder / "keyring.json"),
            "TENURE_READY_FILE": str(ready),
            "TENURE_LOG_LEVEL": "warning",
        }
        certificates = folder / "tls" if tls else None
        if certificates is not None:
            environment |= _tls_settings(certificates)
        profiled = ["-m", "cProfile", "-o", profile] if profile else []
        server = await asyncio.create_subprocess_exec(
            sys.executable, *profiled, "-m", service, env=environment
        )
        try:
            while not ready.exists():
                assert server.returncode is None, f"{service} did not start"
                await asyncio.sleep(0.05)
            port = json.loads(ready.read_text())["port"]
            assert postgres.pid is not None
            yield Started(f"127.0.0.1:{port}", keys, server.pid, postgres.pid, certificates)
        finally:
            server.terminate()
            await server.wait()
    finally:
        await postgres.destroy()
        shutil.rmtree(folder, ignore_errors=True)


def _tls_settings(folder: Path) -> dict[str, str]:
    """Make certificates for the server and both clients; return the server's settings."""
    peers = [
        Peer(Role.SERVICE, "admission"),
        Peer(Role.SERVICE, "service"),
        Peer(Role.USER, "user"),
    ]
    CertificateCabinet(folder).renew(peers, SystemClock().now_ms())
    return {
        "TENURE_TLS_CERTIFICATE": str(folder / "admission.crt"),
        "TENURE_TLS_PRIVATE_KEY": str(folder / "admission.key"),
        "TENURE_TLS_AUTHORITY": str(folder / "authority.pem"),
    }


def a_request() -> calls.CreateLeaseRequest:
    """Return a lease as a typical caller asks for it."""
    lease = pb.Lease(
        terms=pb.Terms(best_effort=pb.BestEffortTerms()),
        node_count=2,
        amounts={"cpu": 2_000, "memory": 4 << 30},
    )
    lease.duration.FromSeconds(600)
    lease.work.command.extend(["/bin/sh", "-c", "exec ./work --input data"])
    return calls.CreateLeaseRequest(lease=lease, request_id=RandomIds().request_id())


async def singles(
    client: Client, callers: int, seconds: float, *, empty: bool = False
) -> list[float]:
    """Create single leases (or make empty calls), so many callers at once; return ms a call."""
    stub = AdmissionServiceStub(client.channel)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    durations: list[float] = []

    async def caller() -> None:
        while (begun := loop.time()) < end:
            if empty:
                await client.call(stub.GetServiceInfo, calls.GetServiceInfoRequest())
            else:
                await client.call(stub.CreateLease, a_request())
            durations.append((loop.time() - begun) * 1_000)

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return durations


async def batches(client: Client, seconds: float, at_once: int = 2) -> list[float]:
    """Create batches of 1,000 leases; return each call's duration in ms."""
    stub = AdmissionServiceStub(client.channel)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    durations: list[float] = []
    items = [a_request() for _ in range(BATCH)]

    async def caller() -> None:
        while (begun := loop.time()) < end:
            request = calls.BatchCreateLeasesRequest(
                requests=items, request_id=RandomIds().request_id()
            )
            answer = await client.call(stub.BatchCreateLeases, request, timeout_s=60)
            assert not any(result.reason for result in answer.results)
            durations.append((loop.time() - begun) * 1_000)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(caller())
    return durations


async def transitions(client: Client, leader: Client, rounds: int) -> list[float]:
    """Record 500 transitions a call: scheduled (charged), starting, active, done; ms each."""
    user, stub = AdmissionServiceStub(client.channel), AdmissionServiceStub(leader.channel)
    loop = asyncio.get_running_loop()
    durations: list[float] = []
    for _ in range(rounds):
        items = [a_request() for _ in range(TRANSITIONS)]
        batch = calls.BatchCreateLeasesRequest(requests=items)
        answer = await client.call(user.BatchCreateLeases, batch, timeout_s=60)
        leases = [result.lease for result in answer.results]
        states = ("SCHEDULED", "STARTING", "ACTIVE", "DONE")
        for version, state in enumerate(states, 1):
            request = calls.RecordTransitionsRequest(scope="pool/default", epoch=1)
            for lease in leases:
                each = request.transitions.add(
                    transition_id=f"1.{lease.name}.{version}",
                    lease=lease.name,
                    version=version,
                    attempt=1,
                    state=pb.Lease.State.Value(f"STATE_{state}"),
                )
                if state == "SCHEDULED":
                    each.charge_interval.start_time.FromSeconds(2_000_000_000)
                    each.charge_interval.end_time.FromSeconds(2_000_000_600)
                    for rank in range(2):
                        place = each.placements.add(rank=rank, node=f"nodes/n{rank}")
                        place.interval.CopyFrom(each.charge_interval)
            begun = loop.time()
            verdicts = await leader.call(stub.RecordTransitions, request, timeout_s=60)
            durations.append((loop.time() - begun) * 1_000)
            assert not any(verdict.reason for verdict in verdicts.verdicts), verdicts.verdicts[0]
    return durations


async def client_main(arguments: argparse.Namespace) -> None:
    """Be the client process: run one kind of call and print what was measured as JSON."""
    user, leader = (
        connect(
            arguments.address,
            api_key=os.environ[f"BENCH_{name.upper()}_KEY"],
            tls=files_in(Path(arguments.tls), name) if arguments.tls else None,
        )
        for name in ("user", "service")
    )
    async with user, leader:
        if arguments.client == "singles":
            await singles(user, arguments.callers, 1.0)
        print("warm", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        before = resource.getrusage(resource.RUSAGE_SELF)
        begun = time.perf_counter()
        if arguments.client == "singles":
            durations = await singles(user, arguments.callers, arguments.seconds)
        elif arguments.client == "empty":
            durations = await singles(user, arguments.callers, arguments.seconds, empty=True)
        elif arguments.client == "batches":
            durations = await batches(user, arguments.seconds)
        else:
            durations = await transitions(user, leader, 3)
        taken_s = time.perf_counter() - begun
        after = resource.getrusage(resource.RUSAGE_SELF)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"durations": durations, "taken_s": taken_s, "cpu_s": used_s}))


async def measure(
    under_test: Started, kind: str, arguments: argparse.Namespace
) -> dict[str, float]:
    """Run one client process and return what it and the servers used."""
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.bench_create_lease", "--client", kind),
        *("--address", under_test.address, "--callers", str(arguments.callers)),
        *("--seconds", str(arguments.seconds)),
        *(("--tls", str(under_test.tls)) if under_test.tls else ()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 26,
        env={
            **os.environ,
            "BENCH_USER_KEY": under_test.keys["user"],
            "BENCH_SERVICE_KEY": under_test.keys["service"],
        },
    )
    assert client.stdin is not None and client.stdout is not None
    assert await client.stdout.readline() == b"warm\n"
    server, postgres = cpu_s(under_test.server_pid), family_cpu_s(under_test.postgres_pid)
    client.stdin.write(b"go\n")
    measured = json.loads(await client.stdout.readline())
    await client.wait()
    durations = sorted(measured["durations"])
    return {
        "calls": len(durations),
        "taken_s": measured["taken_s"],
        "p50_ms": durations[len(durations) // 2],
        "p99_ms": durations[len(durations) * 99 // 100],
        "max_ms": durations[-1],
        "server_s": cpu_s(under_test.server_pid) - server,
        "postgres_s": family_cpu_s(under_test.postgres_pid) - postgres,
        "client_s": measured["cpu_s"],
    }


def report(title: str, result: dict[str, float], items_per_call: int) -> None:
    """Print one measurement."""
    items = result["calls"] * items_per_call
    rate = items / result["taken_s"]
    used = {name: result[f"{name}_s"] for name in ("server", "postgres", "client")}
    cores = os.cpu_count() or 1
    print(f"{title}: {rate:,.0f}/s  ({items:,.0f} in {result['taken_s']:.1f} s)")
    print(
        f"  a call: p50 {result['p50_ms']:.1f} ms, p99 {result['p99_ms']:.1f} ms, "
        f"longest {result['max_ms']:.1f} ms"
    )
    for name, seconds in used.items():
        share = seconds / result["taken_s"]
        print(f"  {name}: {seconds / items * 1e6:.0f} us CPU each, {share:.0%} of a core")
    busy = sum(used.values()) / result["taken_s"]
    load = os.getloadavg()[0]
    largest = max(used, key=lambda name: used[name])
    print(f"  all three: {busy:.2f} of {cores} cores (load {load:.1f}); most by {largest}")


async def main(arguments: argparse.Namespace) -> None:
    """Measure all kinds of call."""
    async with started(arguments.profile) as under_test:
        for kind, title, items in (
            ("empty", f"an empty call (the floor), {arguments.callers} callers", 1),
            ("singles", f"CreateLease, {arguments.callers} callers", 1),
            ("batches", "BatchCreateLeases of 1,000, 2 callers", BATCH),
            ("transitions", "RecordTransitions of 500", TRANSITIONS),
        ):
            if arguments.only in (None, kind):
                report(title, await measure(under_test, kind, arguments), items)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--only", choices=["empty", "singles", "batches", "transitions"])
    parser.add_argument("--profile", help="write a cProfile of the server to this file")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--tls", help=argparse.SUPPRESS)
    given = parser.parse_args()
    asyncio.run(client_main(given) if given.client else main(given))
