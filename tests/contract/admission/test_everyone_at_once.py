"""Owners and the leaders of several pools at once: the ledger is right at every moment."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.contract.admission.harness import (
    Admission,
    Caller,
    State,
    a_lease,
    charged,
    limited,
    record,
    request_id,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission.charges import Charge, peak
from tenure_admission.records import HELD_LEASES, OPEN_LEASES, Limit
from tenure_core.errors import Conflict, Exhausted, WrongState
from tenure_core.leases.states import HOLDING, TRANSITIONS, LeaseState
from tenure_core.timebase import Interval
from tenure_runtime.rpc.wire import to_interval

pytestmark = pytest.mark.postgres

POOLS = ("red", "green", "blue")
CPU_MAX, HELD_MAX, OPEN_MAX = 9_000, 6, 40
SPAN_S = 2_000_000_000


async def own(user: Caller, rng: random.Random, stop: asyncio.Event) -> None:
    """Create, change and cancel leases at random."""
    mine: list[pb.Lease] = []
    while not stop.is_set():
        try:
            if not mine or rng.random() < 0.5:
                lease = a_lease(
                    pool=rng.choice(POOLS), node_count=rng.randint(1, 3), project=rng.choice("pq")
                )
                mine.append(await user.create(lease, request_id=request_id()))
            elif rng.random() < 0.5:
                name = mine.pop(rng.randrange(len(mine))).name
                await user(calls.CancelLeaseRequest(name=name))
            else:
                lease = pb.Lease(name=rng.choice(mine).name, node_count=rng.randint(1, 3))
                await user(calls.UpdateLeaseRequest(lease=lease))
        except (Exhausted, WrongState, Conflict):
            await asyncio.sleep(0.01)


async def lead(
    leader: Caller, pool: str, rng: random.Random, stop: asyncio.Event, verdicts: set[str]
) -> None:
    """Move the leases of a pool along the table at random, charging what is booked."""
    turn = 0
    while not stop.is_set():
        page = await leader(calls.ListLeasesRequest(pool=pool, page_size=30))
        steps = []
        for lease in page.leases:
            before = LeaseState(State.Name(lease.state).removeprefix("STATE_"))
            following = sorted(TRANSITIONS[before], key=lambda state: state.value)
            if not following:
                continue
            after = rng.choice(following)
            waits = lease.state in (State.STATE_PENDING, State.STATE_QUEUED)
            step = transition(lease, State.Value(f"STATE_{after.value}"), version=lease.version)
            step.transition_id = f"{pool}.{turn}.{lease.name}"
            step.attempt = lease.attempt + (1 if waits and after in HOLDING else 0)
            if after in HOLDING and (waits or rng.random() < 0.2):
                charged(step, rng.randint(1, 50), start_s=SPAN_S + rng.randint(0, 50))
            change = lease.pending_change
            if lease.HasField("pending_change") and not change.verdict and after in HOLDING:
                step.change_verdict.change_id = change.change_id
                step.change_verdict.verdict = rng.choice([1, 2])
            steps.append(step)
            turn += 1
        verdicts |= {verdict.reason for verdict in await record(leader, *steps, pool=pool)}
        await asyncio.sleep(0.01)


async def audit(admission: Admission, stop: asyncio.Event) -> int:
    """Recompute the ledger again and again; return how often."""
    times = 0
    while not stop.is_set():
        assert await admission.store.quotas.drifts() == []
        times += 1
        await asyncio.sleep(0.02)
    return times


def charges(leases: list[pb.Lease]) -> list[Charge]:
    """Return what is charged of the leases, from what a list shows of them."""
    return [
        Charge(
            lease.name,
            lease.owner,
            lease.project,
            to_interval(lease.charge_interval),
            {"cpu": lease.amounts["cpu"] * lease.node_count, HELD_LEASES: 1},
        )
        for lease in leases
        if lease.HasField("charge_interval")
    ]


async def test_usage_is_the_sum_and_no_limit_is_exceeded_while_everyone_writes(
    stored: Admission,
) -> None:
    user, leader = await stored.caller(), await stored.caller("service")
    await limited(
        stored,
        Limit("owner", "user", "cpu", CPU_MAX),
        Limit("project", "p", HELD_LEASES, HELD_MAX),
        Limit("owner", "user", OPEN_LEASES, OPEN_MAX),
    )
    stop, verdicts = asyncio.Event(), set[str]()

    async with asyncio.TaskGroup() as group:
        auditing = group.create_task(audit(stored, stop))
        for number in range(12):
            group.create_task(own(user, random.Random(number), stop))
        for pool in POOLS:
            group.create_task(lead(leader, pool, random.Random(pool), stop, verdicts))
        for _ in range(20):
            await asyncio.sleep(0.15)
            # One list is one snapshot: whatever it shows was so at one moment.
            page = await leader(calls.ListLeasesRequest(page_size=1_000))
            held = charges(list(page.leases))
            span = Interval(SPAN_S * 1_000, (SPAN_S + 200) * 1_000)
            assert peak(held, "cpu", span, now=0) <= CPU_MAX
            in_p = [charge for charge in held if charge.project == "p"]
            assert peak(in_p, HELD_LEASES, span, now=0) <= HELD_MAX
            ends = {State.Value(f"STATE_{s}") for s in ("DONE", "FAILED", "CANCELLED", "REJECTED")}
            assert sum(lease.state not in ends for lease in page.leases) <= OPEN_MAX
        stop.set()

    assert auditing.result() > 5
    # Each kind of outcome came up: the test would show nothing otherwise.
    assert {"", "QUOTA_EXCEEDED"} <= verdicts
    assert verdicts <= {"", "QUOTA_EXCEEDED", "VERSION_MISMATCH", "TRANSITION_NOT_ALLOWED"}
    assert await stored.store.quotas.drifts() == []
