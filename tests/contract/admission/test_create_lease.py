"""CreateLease: what is stored, what is refused, and what a repeat does."""

from __future__ import annotations

import asyncio

import pytest
from tests.contract.admission.harness import Admission, State, a_lease, limited, request_id

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure.type.v1 import work_pb2
from tenure_admission.pool_view import NodeView
from tenure_admission.records import OPEN_LEASES, Limit
from tenure_core.errors import AlreadyExists, Exhausted, Invalid, NotFound, WrongState
from tenure_core.resources import ResourceVector
from tenure_runtime.telemetry.tracing import adopt

CREATE = calls.CreateLeaseRequest


async def test_defaults_are_filled_in_and_output_only_fields_ignored(admission: Admission) -> None:
    user = await admission.caller()
    asked = a_lease(name="leases/x", owner="someone", version=9, attempt=4, reason="X")
    asked.history.add(transition_id="forged")

    lease = await user.create(asked)

    assert await user.get(lease) == lease
    expected = a_lease(
        name=lease.name,
        owner="user",
        project="default",
        pool="default",
        preemptible=True,
        on_failure=pb.Lease.ON_FAILURE_FAIL,
        max_attempts=1,
        on_loss=work_pb2.ON_LOSS_STOP,
        trace_parent=lease.trace_parent,
        state=State.STATE_PENDING,
        version=1,
        etag=lease.etag,
        create_time=lease.create_time,
        update_time=lease.create_time,
    )
    expected.stop_grace_duration.FromSeconds(5)
    expected.remaining_duration.FromSeconds(60)
    assert expected == lease
    assert lease.etag


async def test_only_best_effort_leases_are_preemptible_by_default(admission: Admission) -> None:
    user = await admission.caller()

    immediate = await user.create(a_lease(terms=pb.Terms(immediate=pb.ImmediateTerms())))

    assert immediate.HasField("preemptible") and not immediate.preemptible


async def test_the_trace_of_the_call_is_stored(admission: Admission) -> None:
    user = await admission.caller()
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    adopt(trace)

    lease = await user.create()
    given = await user.create(a_lease(trace_parent="00-" + "c" * 32 + "-" + "d" * 16 + "-01"))

    assert trace[:35] == lease.trace_parent[:35]
    assert given.trace_parent[3:35] == "c" * 32


async def test_every_violation_is_told_at_once_and_nothing_is_stored(admission: Admission) -> None:
    user = await admission.caller()
    lease = pb.Lease(
        project="p" * 64,
        node_count=0,
        amounts={"cpu": -1, "Bad Kind": 1},
        priority=1_000_001,
        max_attempts=101,
        labels={"": "v"},
        trace_parent="nonsense",
    )
    lease.duration.nanos = 1
    lease.terms.advance.start_time.FromSeconds(1)
    lease.dependencies.add(lease="x")
    lease.work.command.append("")

    with pytest.raises(Invalid) as caught:
        await user(CREATE(lease=lease, lease_id="Upper", request_id="1"))

    assert {
        ("lease.project", "LENGTH_OUT_OF_RANGE"),
        ("lease.duration", "NOT_WHOLE_MILLISECONDS"),
        ("lease.terms.advance.start_time", "TIME_IN_PAST"),
        ("lease.node_count", "OUT_OF_RANGE"),
        ("lease.priority", "OUT_OF_RANGE"),
        ("lease.labels[]", "LENGTH_OUT_OF_RANGE"),
        ("lease.amounts[cpu]", "OUT_OF_RANGE"),
        ("lease.amounts[Bad Kind]", "KIND_INVALID"),
        ("lease.work.command[0]", "REQUIRED"),
        ("lease.max_attempts", "OUT_OF_RANGE"),
        ("lease.dependencies[0].lease", "NAME_INVALID"),
        ("lease.trace_parent", "TRACE_PARENT_INVALID"),
        ("lease_id", "LEASE_ID_INVALID"),
        ("request_id", "REQUEST_ID_INVALID"),
    } == {(each.field, each.reason) for each in caught.value.violations}
    assert caught.value.reason == "INVALID_REQUEST"
    assert list((await user(calls.ListLeasesRequest())).leases) == []


async def test_an_empty_lease_lacks_all_that_is_required(admission: Admission) -> None:
    user = await admission.caller()

    with pytest.raises(Invalid) as caught:
        await user(CREATE())

    assert {"lease.duration", "lease.terms", "lease.node_count", "lease.amounts"} == {
        each.field for each in caught.value.violations
    }


async def test_an_unknown_dependency_is_refused(admission: Admission) -> None:
    user = await admission.caller()
    lease = a_lease(dependencies=[pb.Dependency(lease="leases/nothing")])

    with pytest.raises(NotFound) as caught:
        await user.create(lease)

    assert (
        caught.value.reason,
        caught.value.metadata["dependency"],
    ) == ("DEPENDENCY_NOT_FOUND", "nothing")


async def test_another_owners_lease_is_no_dependency(admission: Admission) -> None:
    operator, user = await admission.caller("operator"), await admission.caller()
    other = await operator.create()
    dependent = a_lease(dependencies=[pb.Dependency(lease=other.name)])

    with pytest.raises(NotFound, match="does not exist"):
        await user.create(dependent)
    assert len((await operator.create(dependent)).dependencies) == 1


async def test_a_lease_may_not_wait_for_itself(admission: Admission) -> None:
    user = await admission.caller()
    lease = a_lease(dependencies=[pb.Dependency(lease="leases/me")])

    with pytest.raises(Invalid) as caught:
        await user.create(lease, lease_id="me")

    assert [each.reason for each in caught.value.violations] == ["DEPENDENCY_CYCLE"]


async def test_an_id_that_is_taken_is_refused(admission: Admission) -> None:
    user = await admission.caller()
    await user.create(lease_id="mine")

    with pytest.raises(AlreadyExists) as caught:
        await user.create(lease_id="mine")

    assert caught.value.reason == "LEASE_EXISTS"


async def test_a_repeat_returns_the_first_answer_even_after_changes(admission: Admission) -> None:
    user = await admission.caller()
    request = CREATE(lease=a_lease(), request_id=request_id())
    first = await user(request)
    await user(calls.CancelLeaseRequest(name=first.lease.name))

    assert first == await user(request)
    assert len((await user(calls.ListLeasesRequest())).leases) == 1


async def test_a_request_id_with_other_content_is_refused(admission: Admission) -> None:
    user, operator = await admission.caller(), await admission.caller("operator")
    same = request_id()
    await user.create(request_id=same)

    with pytest.raises(Invalid) as caught:
        await user.create(a_lease(priority=5), request_id=same)

    assert caught.value.reason == "REQUEST_ID_REUSED"
    # A request id is its caller's own.
    assert (await operator.create(request_id=same)).owner == "operator"


async def test_many_repeats_at_once_store_one_lease(admission: Admission) -> None:
    user = await admission.caller()
    request = CREATE(lease=a_lease(), request_id=request_id())

    answers = await asyncio.gather(*(user(request) for _ in range(30)))

    assert len({answer.lease.name for answer in answers}) == 1
    assert len((await user(calls.ListLeasesRequest())).leases) == 1


async def test_of_two_contents_at_once_under_one_request_id_one_is_refused(
    admission: Admission,
) -> None:
    user = await admission.caller()
    same = request_id()

    answers = await asyncio.gather(
        *(user.create(a_lease(priority=n), request_id=same) for n in range(10)),
        return_exceptions=True,
    )

    refused = [answer for answer in answers if isinstance(answer, Invalid)]
    assert len(refused) == 9
    assert {"REQUEST_ID_REUSED"} == {error.reason for error in refused}


async def test_many_callers_at_once_for_one_id_leave_one_winner(admission: Admission) -> None:
    user = await admission.caller()

    answers = await asyncio.gather(
        *(user.create(lease_id="wanted") for _ in range(20)), return_exceptions=True
    )

    assert sum(isinstance(answer, pb.Lease) for answer in answers) == 1
    assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 19


async def test_a_refused_request_may_be_repeated_once_its_cause_is_gone(
    admission: Admission,
) -> None:
    user = await admission.caller()
    request = CREATE(
        lease=a_lease(dependencies=[pb.Dependency(lease="leases/first")]), request_id=request_id()
    )
    with pytest.raises(NotFound):
        await user(request)
    await user.create(lease_id="first")

    assert (await user(request)).lease.dependencies[0].lease == "leases/first"


async def test_validate_only_answers_the_same_and_stores_nothing(admission: Admission) -> None:
    user = await admission.caller()
    request = CREATE(lease=a_lease(), lease_id="dry", request_id=request_id(), validate_only=True)

    assert (await user(request)).lease.name == "leases/dry"
    with pytest.raises(NotFound):
        await user.get("leases/dry")
    # Neither id nor request id is used up.
    request.validate_only = False
    assert (await user(request)).lease.name == "leases/dry"
    request.validate_only, request.request_id = True, request_id()
    with pytest.raises(AlreadyExists):
        await user(request)


async def test_what_the_pool_can_never_carry_is_refused(admission: Admission) -> None:
    user = await admission.caller()
    amounts = ResourceVector({"cpu": 4_000, "memory": 8 << 30})
    admission.pools.names = frozenset({"default"})
    admission.pools.put("default", *(NodeView(f"n{n}", {}, (amounts,)) for n in range(2)))

    async def reasons(lease: pb.Lease) -> list[tuple[str, str]]:
        with pytest.raises(Invalid) as caught:
            await user.create(lease)
        return [(each.field, each.reason) for each in caught.value.violations]

    assert await reasons(a_lease(pool="nowhere")) == [("lease.pool", "POOL_NOT_FOUND")]
    assert await reasons(a_lease(amounts={"gpu": 1_000})) == [
        ("lease.amounts[gpu]", "UNKNOWN_RESOURCE")
    ]
    assert await reasons(a_lease(node_count=9)) == [("lease.node_count", "LEASE_NEVER_FITS")]
    assert await reasons(a_lease(node_count=3, spread=True)) == [
        ("lease.node_count", "LEASE_NEVER_FITS")
    ]
    assert (await user.create(a_lease(node_count=8))).node_count == 8


async def test_before_the_nodes_are_known_nothing_is_refused_for_them(admission: Admission) -> None:
    user = await admission.caller()
    admission.pools.put("default", NodeView("n", {}, ()))

    assert (await user.create(a_lease(node_count=9_999))).node_count == 9_999
    assert (await user.create(a_lease(pool="gone"))).pool == "gone"


async def test_what_may_not_wait_is_refused_at_once_while_its_pool_is_cordoned(
    admission: Admission,
) -> None:
    user = await admission.caller()
    at_once = a_lease(pool="closed", terms=pb.Terms(immediate=pb.ImmediateTerms()))
    first = request_id()
    before = await user.create(at_once, request_id=first)
    admission.pools.closed.add("closed")

    with pytest.raises(WrongState) as refused:
        await user.create(at_once, request_id=request_id())
    waits = await user.create(a_lease(pool="closed"))
    elsewhere = await user.create(a_lease(terms=pb.Terms(immediate=pb.ImmediateTerms())))
    again = await user.create(at_once, request_id=first)
    items = [at_once, a_lease(pool="closed")]
    batch = calls.BatchCreateLeasesRequest(
        requests=[calls.CreateLeaseRequest(lease=lease) for lease in items]
    )
    results = (await user(batch)).results
    admission.pools.closed.clear()
    later = await user.create(at_once)

    assert (refused.value.reason, dict(refused.value.metadata)) == (
        "POOL_CORDONED",
        {"pool": "closed"},
    )
    assert again == before
    assert [item.reason for item in results] == ["POOL_CORDONED", ""]
    assert {lease.state for lease in (waits, elsewhere, later)} == {State.STATE_PENDING}


async def test_a_limit_on_open_leases_holds_against_many_at_once(admission: Admission) -> None:
    user = await admission.caller()
    await limited(admission, Limit("owner", "user", OPEN_LEASES, 5))

    answers = await asyncio.gather(*(user.create() for _ in range(20)), return_exceptions=True)

    refused = [answer for answer in answers if isinstance(answer, Exhausted)]
    assert len(refused) == 15
    assert {"LEASE_LIMIT_REACHED"} == {error.reason for error in refused}
    lease = next(answer for answer in answers if isinstance(answer, pb.Lease))
    await user(calls.CancelLeaseRequest(name=lease.name))
    assert (await user.create()).owner == "user"


async def test_a_repeat_is_answered_although_its_start_has_passed_since(
    admission: Admission,
) -> None:
    """A client that lost the answer learns that its lease was stored, not that it is too late."""
    user = await admission.caller()
    lease = a_lease(terms=pb.Terms(advance=pb.AdvanceTerms()))
    lease.terms.advance.start_time.FromMilliseconds(admission.clock.now_ms() + 5_000)
    request = CREATE(lease=lease, request_id=request_id())
    first = await user(request)
    update = calls.UpdateLeaseRequest(
        lease=pb.Lease(name=first.lease.name, terms=lease.terms, priority=1),
        request_id=request_id(),
    )
    changed = await user(update)
    admission.clock.ahead_ms += 10_000

    assert await user(request) == first
    assert await user(update) == changed
    for late in (request, update):
        late.request_id = request_id()
        with pytest.raises(Invalid, match="in the past"):
            await user(late)
    with pytest.raises(Invalid) as caught:
        await user(CREATE(lease=lease, request_id=update.request_id))
    assert caught.value.reason == "INVALID_REQUEST"
