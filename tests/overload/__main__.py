"""Offers admission ten times what it can do for two minutes; says what came of it, and judges it.

    make overload [DURATION_S=120] [FACTOR=10]

A private PostgreSQL (fsync on), one admission process and this client share the machine. Peak is
what sixteen callers get done one call after another. Meanwhile a leader and a health check call
all the time: they must be served. Ends with 1 when goodput under overload is below 80 % of the
peak, an accepted call takes longer than its bound, a leader or health call fails, or goodput is
not back within ten seconds of the end.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass, field

from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.bench.bench_create_lease import Started, started
from tests.overload.generator import BATCH, Generator, Outcome, generating

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure_core.errors import DomainError
from tenure_runtime.rpc.client import connect

CALLERS = 16
PEAK_S = 15.0
RECOVERY_S = 10.0
GOODPUT_MIN = 0.8
LATENCY_MAX_S = 3.0
VITAL_MAX_S = 3.0


@dataclass
class Vital:
    """How calls fared that must be served whatever users do."""

    took_s: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


async def vital_calls(under_test: Started, stop: asyncio.Event) -> tuple[Vital, Vital]:
    """Call as a leader and as a health check, five times a second each, until stopped."""
    leader, health = Vital(), Vital()
    loop = asyncio.get_running_loop()
    async with connect(under_test.address, api_key=under_test.keys["service"]) as client:
        stub = AdmissionServiceStub(client.channel)
        checks = health_pb2_grpc.HealthStub(client.channel)
        while not stop.is_set():
            for vital, method, request in (
                (leader, stub.FenceEpoch, calls.FenceEpochRequest(scope="pool/default", epoch=1)),
                (leader, stub.ListLeases, calls.ListLeasesRequest(page_size=1)),
                (health, checks.Check, health_pb2.HealthCheckRequest()),
            ):
                began = loop.time()
                try:
                    await client.call(method, request, timeout_s=VITAL_MAX_S, retry=False)
                except DomainError as error:
                    vital.failed.append(error.reason)
                vital.took_s.append(loop.time() - began)
            await asyncio.sleep(0.2)
    return leader, health


def rate(outcome: Outcome, seconds: float) -> float:
    """Return accepted leases a second."""
    return len(outcome.accepted_s) * BATCH / seconds


def quantile(values: list[float], share: float) -> float:
    """Return a quantile; 0 of nothing."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


async def recovered_after(generator: Generator, peak: float) -> float:
    """Return after how many seconds a second's goodput is again what it was; inf when never."""
    for second in range(int(RECOVERY_S)):
        again = await generator.at_once(CALLERS, 1.0)
        if rate(again, 1.0) >= GOODPUT_MIN * peak:
            return second + 1.0
    return float("inf")


async def main(seconds: float, factor: float) -> int:
    """Measure, print, judge."""
    async with (
        started() as under_test,
        generating(under_test.address, under_test.keys["user"]) as generator,
    ):
        await generator.at_once(CALLERS, 3.0)
        before = await generator.at_once(CALLERS, PEAK_S)
        peak = rate(before, PEAK_S)
        stop = asyncio.Event()
        vital = asyncio.create_task(vital_calls(under_test, stop))
        offered_per_s = factor * peak / BATCH
        outcome = await generator.at_rate(offered_per_s, seconds)
        stop.set()
        leader, health = await vital
        back_s = await recovered_after(generator, peak)
    goodput = rate(outcome, seconds)
    took = outcome.accepted_s
    print(f"peak: {peak:.0f} leases/s, {quantile(before.accepted_s, 0.5):.3f} s a call")
    offered = outcome.offered / seconds * BATCH
    print(f"offered: {offered:.0f} leases/s for {seconds:.0f} s, {outcome.unsent} calls unsent")
    print(f"goodput: {goodput:.0f} leases/s, {goodput / peak:.0%} of the peak")
    spread = f"median {quantile(took, 0.5):.3f} s, 99 % {quantile(took, 0.99):.3f} s"
    print(f"accepted calls took: {spread}, at most {max(took, default=0):.3f} s")
    refusal_s = quantile(outcome.refusal_s, 0.5)
    print(f"not accepted: {dict(outcome.refused)}, median {refusal_s:.3f} s")
    for name, each in (("leader", leader), ("health", health)):
        most = f"at most {max(each.took_s):.3f} s"
        print(f"{name}: {len(each.took_s)} calls, {most}, failed {each.failed}")
    print(f"recovered after: {back_s:.0f} s")
    wrong = [
        text
        for text, is_wrong in (
            ("goodput is below 80 % of the peak", goodput < GOODPUT_MIN * peak),
            ("accepted calls took too long", quantile(took, 0.99) > LATENCY_MAX_S),
            ("leader or health calls failed", bool(leader.failed or health.failed)),
            ("it did not recover within 10 s", back_s > RECOVERY_S),
        )
        if is_wrong
    ]
    print("holds" if not wrong else "DOES NOT HOLD: " + "; ".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--factor", type=float, default=10.0)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.seconds, given.factor)))
