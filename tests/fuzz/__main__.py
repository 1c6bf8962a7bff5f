"""`make fuzz`: every call of every service, on a real suite. Exit code 1 when one misbehaves."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter

from tests.fuzz import frames
from tests.fuzz.running import fuzz
from tests.support.suite import RunningSuite, running_suite

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_cli.embedded.layout import SERVICES
from tenure_runtime.embedded.readiness import grpc_health

ABUSED = "/grpc.health.v1.Health/Check"


async def prepared(suite: RunningSuite) -> list[str]:
    """Put something in, so that names lead somewhere; return them."""
    async with suite.connect() as connection:
        client, admission = await connection.admission()
        for name in ("booked", "waits"):
            lease = pb.Lease(node_count=1, amounts={"cpu": 1_000}, labels={"fuzz": "yes"})
            lease.terms.best_effort.SetInParent()
            lease.duration.FromSeconds(3_600)
            request = calls.CreateLeaseRequest(lease=lease, lease_id=name)
            await client.call(admission.CreateLease, request)
    named = ("booked", "waits", "agent-1", "default", "machine-1", "owner/operator", "project/x")
    kinds = ("leases", "pools", "agents", "policies", "groups", "nodes", "quotas")
    return [*named, *(f"{kind}/{name}" for kind in kinds for name in named[:4]), "cpu", "memory"]


async def abuse(suite: RunningSuite, rounds: int) -> None:
    """Abuse the socket of each service below gRPC."""
    for service in SERVICES:
        port = suite.suite.state.ports[service]
        for number in range(rounds):
            await frames.garbage(port, number)
        await frames.rapid_reset(port, ABUSED)
        await frames.header_flood(port, ABUSED)
        await frames.slow_body(port, ABUSED)
        await frames.floods(port)


async def run(count: int, seed: int) -> int:
    """Fuzz, print a line a call, and return how many faults were seen."""
    faults: list[str] = []
    total: Counter[str] = Counter()
    async with running_suite(agents=1, plaintext=True) as suite:
        names = await prepared(suite)
        before = {service: suite.pid(service) for service in SERVICES}
        async for outcome, rate in fuzz(suite, names, count, seed):
            codes = " ".join(f"{code}={number}" for code, number in outcome.codes.most_common())
            print(f"{outcome.method}: {rate:.0f}/s {codes}", flush=True)
            faults += outcome.faults[:3]
            total += outcome.codes
        await abuse(suite, rounds=max(3, count // 500))
        for service, pid in before.items():
            if not suite.runs(service) or suite.pid(service) != pid:
                faults.append(f"{service} ended")
            if not await grpc_health(suite.suite.state.address(service))():
                faults.append(f"{service} does not serve any more")
    print(f"{sum(total.values())} requests with seed {seed}: {dict(total.most_common())}")
    for fault in faults:
        print(f"FAULT {fault}")
    return len(faults)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="requests to each call")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(1 if asyncio.run(run(given.count, given.seed)) else 0)
