"""The scheduler's own contract: wire messages to its values, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_core.errors import Invalid, Violation
from tenure_core.leases.lease import Advance, BestEffort, Deadline, Immediate, LeaseSpec, Terms
from tenure_core.policies.bundle import HALF_LIFE_MS
from tenure_core.policies.ordering import AGE_MAX_MS
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_millis, to_timestamp
from tenure_scheduler.pools import DEFAULT, DEPTH_DEFAULT, Pool, PoolPolicy
from tenure_scheduler.questions import DemandEntry, Outlook, QueueEntry, StartPrediction, WhatIf

_BACKFILLING: Final = {
    ppb.Policy.BACKFILLING_UNSPECIFIED: "easy",
    ppb.Policy.BACKFILLING_OFF: "off",
    ppb.Policy.BACKFILLING_EASY: "easy",
    ppb.Policy.BACKFILLING_INTERMEDIATE: "intermediate",
    ppb.Policy.BACKFILLING_CONSERVATIVE: "conservative",
}
_PREEMPTION: Final = {
    ppb.Policy.PREEMPTION_UNSPECIFIED: "suspend",
    ppb.Policy.PREEMPTION_OFF: "off",
    ppb.Policy.PREEMPTION_SUSPEND: "suspend",
    ppb.Policy.PREEMPTION_REQUEUE: "requeue",
}
_BACKFILLING_BACK: Final = {name: number for number, name in _BACKFILLING.items()}
_PREEMPTION_BACK: Final = {name: number for number, name in _PREEMPTION.items()}


def version_of(etag: str) -> int | None:
    """Return the version that an etag stands for, None for none; -1 for what is no etag of ours."""
    if not etag:
        return None
    return int(etag) if etag.isdigit() and len(etag) < 19 else -1


def to_pool(wire: ppb.Pool) -> Pool:
    """Return a pool that is wanted."""
    return Pool(bare(wire.name), wire.description, bare(wire.policy) or DEFAULT, wire.cordoned)


def from_pool(pool: Pool) -> ppb.Pool:
    """Return a pool for the wire."""
    return ppb.Pool(
        name=f"pools/{pool.id}",
        description=pool.description,
        policy=f"policies/{pool.policy}",
        cordoned=pool.cordoned,
        etag=str(pool.version),
        create_time=to_timestamp(pool.created),
    )


def merged_pool(present: Pool, wire: ppb.Pool, mask: list[str]) -> Pool:
    """Return the pool with the fields of the mask taken from the request."""
    fields = ("description", "policy", "cordoned")
    paths = _paths(mask, fields, [name for name in fields if getattr(wire, name)])
    wanted = to_pool(wire)
    return replace(present, **{path: getattr(wanted, path) for path in paths})


def to_policy(wire: ppb.Policy) -> PoolPolicy:
    """Return a policy that is wanted."""
    return PoolPolicy(
        bare(wire.name),
        _BACKFILLING[wire.backfilling],
        wire.promise_count or 1,
        wire.depth or DEPTH_DEFAULT,
        wire.preemption_policy or _PREEMPTION[wire.preemption],
        wire.ordering or "fifo",
        wire.placement or "pack",
        span_to_millis(wire.suspend_duration),
        span_to_millis(wire.resume_duration),
        weights=dict(wire.weights),
        age_ms=span_to_millis(wire.age_duration) or AGE_MAX_MS,
        half_life_ms=span_to_millis(wire.half_life_duration) or HALF_LIFE_MS,
        admission=wire.admission or "all",
    )


def from_policy(policy: PoolPolicy) -> ppb.Policy:
    """Return a policy for the wire."""
    return ppb.Policy(
        name=f"policies/{policy.id}",
        backfilling=_BACKFILLING_BACK[policy.backfilling],
        promise_count=policy.promises,
        depth=policy.depth,
        preemption=_PREEMPTION_BACK.get(policy.preemption, ppb.Policy.PREEMPTION_UNSPECIFIED),
        preemption_policy="" if policy.preemption in _PREEMPTION_BACK else policy.preemption,
        ordering=policy.ordering,
        placement=policy.placement,
        suspend_duration=to_duration(policy.suspend_ms),
        resume_duration=to_duration(policy.resume_ms),
        weights=policy.weights,
        age_duration=to_duration(policy.age_ms),
        half_life_duration=to_duration(policy.half_life_ms),
        admission=policy.admission,
        etag=str(policy.version),
    )


_POLICY_FIELDS: Final = {
    "backfilling": "backfilling",
    "promise_count": "promises",
    "depth": "depth",
    "preemption": "preemption",
    "preemption_policy": "preemption",
    "ordering": "ordering",
    "placement": "placement",
    "suspend_duration": "suspend_ms",
    "resume_duration": "resume_ms",
    "weights": "weights",
    "age_duration": "age_ms",
    "half_life_duration": "half_life_ms",
    "admission": "admission",
}


def merged_policy(present: PoolPolicy, wire: ppb.Policy, mask: list[str]) -> PoolPolicy:
    """Return the policy with the fields of the mask taken from the request."""
    populated = [field.name for field, _ in wire.ListFields() if field.name in _POLICY_FIELDS]
    paths = _paths(mask, tuple(_POLICY_FIELDS), populated)
    wanted = to_policy(wire)
    names = [_POLICY_FIELDS[path] for path in paths]
    return replace(present, **{name: getattr(wanted, name) for name in names})


def _paths(mask: list[str], known: tuple[str, ...], populated: list[str]) -> list[str]:
    """Return the fields to take over: those of the mask, all for `*`, the populated for none."""
    if mask == ["*"]:
        return list(known)
    unknown = [path for path in mask if path not in known]
    if unknown:
        text = f"names only {', '.join(known)}; not {', '.join(unknown)}"
        raise Invalid([Violation("update_mask", "UNKNOWN_FIELD", text)])
    return mask or populated


def from_queue_entry(entry: QueueEntry) -> spb.QueueEntry:
    """Return one waiting lease for the wire."""
    lease = entry.lease.lease
    return spb.QueueEntry(
        position=entry.position,
        lease=f"leases/{lease.id}",
        owner=lease.spec.owner,
        node_count=lease.spec.node_count,
        amounts=dict(lease.spec.amounts),
        duration=to_duration(lease.spec.duration_ms),
        priority=lease.spec.priority,
        reason=entry.reason,
        message=entry.message,
        predicted_start_time=(
            None if entry.predicted_start is None else to_timestamp(entry.predicted_start)
        ),
        create_time=to_timestamp(lease.created),
    )


def from_prediction(prediction: StartPrediction) -> spb.StartPrediction:
    """Return one prediction for the wire."""
    return spb.StartPrediction(
        lease=f"leases/{prediction.lease}",
        start_time=None if prediction.start is None else to_timestamp(prediction.start),
        reason=prediction.reason,
        message=prediction.message,
    )


def to_spec(request: spb.WhatIfRequest, owner: str) -> LeaseSpec:
    """Return the lease that is asked about."""
    terms: Terms = BestEffort()
    if request.immediate:
        terms = Immediate()
    elif request.HasField("advance_start_time"):
        terms = Advance(to_millis(request.advance_start_time))
    elif request.HasField("deadline_time"):
        terms = Deadline(to_millis(request.deadline_time))
    return LeaseSpec(
        owner=owner,
        project=DEFAULT,
        pool=bare(request.pool),
        terms=terms,
        node_count=request.node_count,
        amounts=ResourceVector(request.amounts),
        duration_ms=span_to_millis(request.duration),
        priority=request.priority,
        node_selector=dict(request.node_selector),
        spread=request.spread,
    )


def from_what_if(answer: WhatIf) -> spb.WhatIfResponse:
    """Return what would become of a lease for the wire."""
    return spb.WhatIfResponse(
        accepted=answer.accepted,
        start_time=None if answer.start is None else to_timestamp(answer.start),
        nodes=[f"nodes/{node}" for node in answer.nodes],
        preempted_leases=[f"leases/{lease}" for lease in answer.preempted],
        reason=answer.reason,
        message=answer.message,
    )


def from_outlook(outlook: Outlook, now: Millis) -> spb.ExplainWaitingResponse:
    """Return where a waiting lease stands for the wire."""
    return spb.ExplainWaitingResponse(
        position=outlook.position,
        total_count=outlook.total,
        place_message=outlook.place,
        start_time=None if outlook.start is None else to_timestamp(outlook.start),
        suggestions=[
            spb.SuggestedChange(
                node_count=each.terms.node_count,
                duration=to_duration(each.terms.duration_ms),
                start_time=to_timestamp(each.start),
            )
            for each in outlook.suggestions
        ],
        as_of=to_timestamp(now),
    )


def from_demand_entry(entry: DemandEntry) -> spb.DemandEntry:
    """Return what one lease waits for, for the wire."""
    return spb.DemandEntry(
        lease=f"leases/{entry.lease}",
        node_count=entry.node_count,
        amounts=dict(entry.amounts),
        duration=to_duration(entry.duration_ms),
        node_selector=entry.node_selector,
        spread=entry.spread,
        create_time=to_timestamp(entry.created),
    )
