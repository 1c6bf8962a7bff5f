"""Quotas that change while 32 clients create and cancel and leaders charge: none is exceeded."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from tests.contract.admission.harness import (
    Admission,
    Caller,
    State,
    a_lease,
    charged,
    record,
    request_id,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import quota_pb2 as qpb
from tenure_admission.charges import Charge, peak
from tenure_admission.records import HELD_LEASES, OPEN_LEASES
from tenure_core.errors import Exhausted, WrongState
from tenure_core.leases.states import ENDED, HOLDING, TRANSITIONS, LeaseState
from tenure_core.timebase import Interval
from tenure_runtime.rpc.wire import to_interval

pytestmark = pytest.mark.postgres

CLIENTS = 32
ROUNDS = 12
POOLS = ("red", "green", "blue", "gray", "pink", "gold")
FAR_S = 2_000_000_000
SPAN = Interval(FAR_S * 1_000, (FAR_S + 200) * 1_000)
OPEN = [State.Value(f"STATE_{state.value}") for state in LeaseState if state not in ENDED]


@dataclass
class Seen:
    """What came of the calls, so that the test shows something only if all of it came up."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    verdicts: set[str] = field(default_factory=set)
    refusals: set[str] = field(default_factory=set)
    verified: int = 0


async def own(user: Caller, rng: random.Random, seen: Seen) -> None:
    """Create and cancel at random."""
    mine: list[str] = []
    while not seen.stop.is_set():
        try:
            if not mine or rng.random() < 0.6:
                lease = a_lease(pool=rng.choice(POOLS), node_count=rng.randint(1, 3))
                mine.append((await user.create(lease, request_id=request_id())).name)
            else:
                name = mine.pop(rng.randrange(len(mine)))
                await user(calls.CancelLeaseRequest(name=name))
        except Exhausted as refused:
            seen.refusals.add(refused.reason)
            if mine:
                await user(calls.CancelLeaseRequest(name=mine.pop(0)))
        except WrongState:
            pass
        await asyncio.sleep(0.01)


async def lead(leader: Caller, pool: str, rng: random.Random, seen: Seen) -> None:
    """Move the leases of a pool along the table at random, charging what is booked."""
    turn = 0
    while not seen.stop.is_set():
        page = await leader(calls.ListLeasesRequest(pool=pool, page_size=40))
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
            if after in HOLDING and (waits or rng.random() < 0.3):
                charged(step, rng.randint(1, 50), start_s=FAR_S + rng.randint(0, 50))
            steps.append(step)
            turn += 1
        seen.verdicts |= {verdict.reason for verdict in await record(leader, *steps, pool=pool)}
        await asyncio.sleep(0.01)


async def verify(operator: Caller, seen: Seen) -> None:
    """Compare the ledger with the charged leases, again and again."""
    while not seen.stop.is_set():
        assert list((await operator(calls.VerifyUsageRequest())).drifts) == []
        seen.verified += 1
        await asyncio.sleep(0.02)


async def peaks(leader: Caller) -> dict[str, int]:
    """Return the most that is charged at any instant, and how many leases are open.

    One list is one snapshot: whatever it shows was so at one moment.
    """
    page = await leader(calls.ListLeasesRequest(states=OPEN, page_size=1_000))
    assert not page.next_page_token
    held = [
        Charge(
            lease.name,
            lease.owner,
            lease.project,
            to_interval(lease.charge_interval),
            {"cpu": lease.amounts["cpu"] * lease.node_count, HELD_LEASES: 1},
        )
        for lease in page.leases
        if lease.HasField("charge_interval")
    ]
    found = {kind: peak(held, kind, SPAN, now=0) for kind in ("cpu", HELD_LEASES)}
    return {**found, OPEN_LEASES: len(page.leases)}


async def tighten_and_loosen(
    operator: Caller, leader: Caller, rng: random.Random
) -> list[dict[str, int]]:
    """Set quotas to new values and watch what is used under each; return the values.

    Where more is used than the new value it must not grow; otherwise it must stay within it.
    """
    given = []
    for _ in range(ROUNDS):
        limits = {
            "cpu": rng.choice([0, 2_000, 5_000, 9_000]),
            HELD_LEASES: rng.choice([1, 3, 6]),
            OPEN_LEASES: rng.choice([20, 60]),
        }
        for number, resource in enumerate(limits):
            # The cpu is the project's: its charges and the owner's are decided by different rows.
            quota = qpb.Quota(name=f"quotas/q{number}", limits={resource: limits[resource]})
            if resource == "cpu":
                quota.project = "default"
            else:
                quota.owner = "user"
            await operator(calls.SetQuotaRequest(quota=quota, request_id=request_id()))
        before = await peaks(leader)
        for _ in range(4):
            await asyncio.sleep(0.04)
            now = await peaks(leader)
            for resource, most in limits.items():
                assert now[resource] <= max(most, before[resource]), (resource, limits, before)
            before = now
        given.append(limits)
    return given


async def test_no_quota_is_exceeded_and_the_ledger_is_right_while_everyone_writes(
    stored: Admission,
) -> None:
    user, leader = await stored.caller(), await stored.caller("service")
    operator = await stored.caller("operator")
    seen = Seen()

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(own(user, random.Random(number), seen))
        for pool in POOLS:
            group.create_task(lead(leader, pool, random.Random(pool), seen))
        group.create_task(verify(operator, seen))
        given = await tighten_and_loosen(operator, leader, random.Random(7))
        seen.stop.set()

    # Each kind of outcome came up: the test would show nothing otherwise.
    assert len({tuple(limits.values()) for limits in given}) > 5
    assert seen.verified > 5
    assert {"", "QUOTA_EXCEEDED"} <= seen.verdicts
    assert seen.verdicts <= {"", "QUOTA_EXCEEDED", "VERSION_MISMATCH", "TRANSITION_NOT_ALLOWED"}
    assert seen.refusals == {"LEASE_LIMIT_REACHED"}
    assert list((await operator(calls.VerifyUsageRequest())).drifts) == []
