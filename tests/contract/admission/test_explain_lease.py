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
from tenure.admission.v1 import quota_pb2 as qpb
from tenure_admission.ports import Outlook
from tenure_core.admission.remedies import Remedy, Suggestion, Terms
from tenure_core.errors import NotFound
from tenure_runtime.rpc.wire import span_to_millis, to_millis

Predicate = calls.PredicateResult.Predicate


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


async def _told(leader: Caller, lease: pb.Lease, reason: str, message: str = "It waits.") -> None:
    request = calls.RecordTransitionsRequest(scope="pool/default", epoch=1)
    request.predictions.add(lease=lease.name, queue_position=1, reason=reason, message=message)
    await leader(request)


async def test_remedies_come_from_the_leaders_the_soonest_first(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create(a_lease(node_count=4))
    await _told(leader, lease, "WAITING_FOR_CAPACITY")
    now = admission.clock.now_ms()
    hour = 3_600_000
    asked = span_to_millis(lease.duration)
    admission.desk.own = Outlook(
        2, 5, "The queue goes by arrival.", now + 9 * hour,
        [Suggestion(Remedy.FEWER_NODES, Terms(3, asked), now + hour)],
    )  # fmt: skip
    admission.desk.others = {"late": now + 10 * hour, "free": now, "never": None}

    answer = await explain(user, lease)

    assert admission.desk.asked == [None]
    assert [(each.kind, each.node_count, each.pool) for each in answer.remedies] == [
        (calls.Remedy.KIND_OTHER_POOL, 4, "pools/free"),
        (calls.Remedy.KIND_FEWER_NODES, 3, ""),
    ]
    assert answer.remedies[0].message == "In pool free it would start now."
    assert answer.remedies[1].message.startswith("With 3 of 4 slots it would start at ")
    assert (answer.queue_position, answer.queue_length) == (2, 5)
    assert to_millis(answer.predicted_start_time) == now + 9 * hour
    assert "It is number 2 of 5 in the queue. The queue goes by arrival." in answer.sentences


async def test_a_quota_bounds_what_is_asked_of_leaders_and_another_project_may_help(
    admission: Admission,
) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    ops = await admission.caller("operator")
    quota = qpb.Quota(name="quotas/q", project="full", limits={"cpu": 2_000})
    await ops(calls.SetQuotaRequest(quota=quota))
    await user.create(a_lease(project="roomy"))
    lease = await user.create(a_lease(project="full", node_count=4, amounts={"cpu": 1_000}))
    await _told(leader, lease, "QUOTA_EXCEEDED")
    now = admission.clock.now_ms()
    admission.desk.own = Outlook(1, 1, "The queue goes by arrival.", now, [])

    answer = await explain(user, lease)

    assert admission.desk.asked == [Terms(2, 0)]
    [remedy] = answer.remedies
    assert (remedy.kind, remedy.project) == (calls.Remedy.KIND_OTHER_PROJECT, "roomy")
    blocks = {each.predicate: each.reason for each in answer.predicates if each.blocks}
    assert blocks == {Predicate.PREDICATE_PROJECT_QUOTA: "QUOTA_EXCEEDED"}


async def test_each_predicate_tells_since_when(admission: Admission) -> None:
    user, leader = await admission.caller(), await admission.caller("service")
    lease = await user.create()
    fresh = await explain(user, lease)
    looks = []
    for reason in ("POOL_CORDONED", "WAITING_FOR_CAPACITY", "WAITING_FOR_CAPACITY"):
        admission.clock.ahead_ms += 10_000
        looks.append(admission.clock.now_ms())
        await _told(leader, lease, reason)

    answer = await explain(user, lease)
    results = {Predicate.Name(each.predicate): each for each in answer.predicates}

    def since(predicate: str) -> int:
        return to_millis(results[f"PREDICATE_{predicate}"].since_time)

    unknown = [each.predicate for each in fresh.predicates if not each.HasField("since_time")]
    assert unknown == [
        Predicate.PREDICATE_POOL_OPEN,
        Predicate.PREDICATE_PLACE_IN_QUEUE,
        Predicate.PREDICATE_NODES_SUITABLE,
        Predicate.PREDICATE_CAPACITY,
    ]
    assert [name for name, each in results.items() if each.blocks] == ["PREDICATE_CAPACITY"]
    assert results["PREDICATE_CAPACITY"].reason == "WAITING_FOR_CAPACITY"
    assert looks[1] <= since("CAPACITY") < looks[2]
    assert looks[1] <= since("POOL_OPEN") < looks[2]
    assert since("START_TIME") == to_millis(lease.create_time)
