"""ExplainLease: plain sentences from what the book holds."""

from __future__ import annotations

import pytest
from tests.contract.admission.harness import (
    Admission,
    Caller,
    State,
    a_lease,
    charged,
    record,
    transition,
)

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_core.errors import NotFound


async def explain(caller: Caller, lease: pb.Lease) -> calls.ExplainLeaseResponse:
    answer: calls.ExplainLeaseResponse = await caller(calls.ExplainLeaseRequest(name=lease.name))
    return answer


async def test_a_new_lease_awaits_its_leader(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()

    answer = await explain(user, lease)

    assert lease == answer.lease
    assert list(answer.sentences) == [
        "It was created; the leader of pool default has not decided yet."
    ]
    assert list(answer.obstacles) == []


async def test_a_leader_that_does_not_look_is_named(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    admission.clock.ahead_ms += 60_000

    [obstacle] = (await explain(user, lease)).obstacles

    assert (obstacle.reason, obstacle.subject) == ("LEADER_SILENT", "pools/default")
    assert obstacle.remedy


async def test_what_a_lease_waits_for_is_told_with_its_remedy(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    ended = await user.create(lease_id="ended")
    await user(calls.CancelLeaseRequest(name=ended.name))
    await user.create(lease_id="open")
    asked = a_lease(
        terms=pb.Terms(advance=pb.AdvanceTerms()),
        dependencies=[
            pb.Dependency(lease="leases/open"),
            pb.Dependency(lease="leases/ended"),
            pb.Dependency(lease="leases/ended", condition=pb.Dependency.CONDITION_ENDED),
        ],
    )
    asked.terms.advance.start_time.FromJsonString("2030-01-02T03:04:05Z")
    lease = await user.create(asked)
    request = calls.RecordTransitionsRequest(scope="pool/default", epoch=1)
    prediction = request.predictions.add(
        lease=lease.name,
        queue_position=3,
        reason="WAITING_FOR_CAPACITY",
        message="The pool is full.",
    )
    prediction.predicted_start_time.FromJsonString("2030-01-02T04:00:00Z")
    await leader(request)

    answer = await explain(user, lease)

    assert [(obstacle.reason, obstacle.subject) for obstacle in answer.obstacles] == [
        ("WAITING_FOR_DEPENDENCY", "leases/open"),
        ("DEPENDENCY_FAILED", "leases/ended"),
        ("WAITING_FOR_START_TIME", ""),
        ("WAITING_FOR_CAPACITY", "default"),
    ]
    assert list(answer.sentences) == [
        "It was created; the leader of pool default has not decided yet.",
        "leases/open must succeed first; it is PENDING.",
        "leases/ended, which must succeed first, ended as CANCELLED.",
        "It asks to start at 2030-01-02 03:04:05 UTC.",
        "The pool is full.",
        "It is number 3 in the queue.",
        "It is expected to start at 2030-01-02 04:00:00 UTC.",
        "Cancel this lease, or create it anew without that dependency.",
        "Fewer slots, smaller amounts or a shorter duration may start sooner.",
    ]
    assert answer.queue_position == 3
    assert answer.HasField("evaluate_time")


async def test_a_held_lease_tells_its_state_its_change_and_its_preemptions(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    step = charged(transition(lease, State.STATE_SCHEDULED, attempt=1, preempted=True), 60)
    step.predicted_start_time.FromJsonString("2030-01-02T03:04:05Z")
    await record(leader, step)
    await user(calls.UpdateLeaseRequest(lease=pb.Lease(name=lease.name, node_count=2)))

    sentences = list((await explain(user, lease)).sentences)

    assert sentences[0] == "It is booked and charged; it starts at 2030-01-02 03:04:05 UTC."
    assert "awaits its leader's decision" in sentences[1]
    assert sentences[2] == "It was preempted once."


async def test_an_ended_lease_tells_when_and_why(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    step = transition(
        lease, State.STATE_REJECTED, reason="NO_CAPACITY", message="Nothing is free now."
    )
    step.end_time.FromJsonString("2026-01-02T03:04:05Z")
    await record(leader, step)

    assert list((await explain(user, lease)).sentences) == [
        "It was refused before anything was booked at 2026-01-02 03:04:05 UTC. Nothing is free now."
    ]


async def test_a_cancelled_lease_says_so_once(admission: Admission) -> None:
    user = await admission.caller()
    lease = await user.create()
    await user(calls.CancelLeaseRequest(name=lease.name))

    [sentence] = (await explain(user, lease)).sentences

    assert sentence.startswith("Its owner gave it up at ")
    assert sentence.count("gave it up") == 1


async def test_others_leases_are_not_explained(admission: Admission) -> None:
    user, operator = await admission.caller(), await admission.caller("operator")

    with pytest.raises(NotFound):
        await explain(user, await operator.create())
