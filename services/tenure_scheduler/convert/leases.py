"""Admission's leases and transitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.type.v1 import work_pb2
from tenure_core.leases.lease import (
    Advance,
    BestEffort,
    Deadline,
    Dependency,
    DependencyCondition,
    HistoryEntry,
    Immediate,
    Lease,
    LeaseSpec,
    OnFailure,
    OnLoss,
    Placement,
    Terms,
    Work,
)
from tenure_core.leases.states import LeaseState
from tenure_core.resources import ResourceVector
from tenure_runtime.rpc.wire import (
    bare,
    from_interval,
    span_to_millis,
    to_duration,
    to_interval,
    to_millis,
    to_timestamp,
)
from tenure_scheduler.entries import (
    ChangeVerdict,
    CounterOffer,
    LeaseEntry,
    Prediction,
    RequestedChange,
    Transition,
)

_STATES: Final = {
    number: LeaseState(name.removeprefix("STATE_"))
    for name, number in lpb.Lease.State.items()
    if number
}
_NUMBERS: Final = {state: number for number, state in _STATES.items()}


def from_state(state: LeaseState) -> lpb.Lease.State.ValueType:
    """Return a state for the wire."""
    return _NUMBERS[state]


def to_state(number: lpb.Lease.State.ValueType) -> LeaseState:
    """Return a lease's state."""
    return _STATES[number]


def to_lease(wire: lpb.Lease, *, whole_history: bool = False) -> LeaseEntry:
    """Return a lease as admission tells it.

    Of what it went through, a leader asks only since when it runs, so no more is taken over unless
    it is wanted.
    """
    lease = Lease(
        id=bare(wire.name),
        spec=_to_spec(wire),
        state=_STATES[wire.state],
        created=to_millis(wire.create_time),
        version=wire.version,
        attempt=wire.attempt,
        reason=wire.reason,
        message=wire.message,
        started=to_millis(wire.start_time) if wire.HasField("start_time") else None,
        ended=to_millis(wire.end_time) if wire.HasField("end_time") else None,
        remaining_ms=span_to_millis(wire.remaining_duration),
        placements=tuple(
            Placement(p.rank, bare(p.node), to_interval(p.interval)) for p in wire.placements
        ),
        exit_code=wire.exit_code if wire.HasField("exit_code") else None,
        preemptions=wire.preemption_count,
        history=tuple(
            _to_entry(entry)
            for entry in wire.history
            if whole_history or entry.state == lpb.Lease.STATE_ACTIVE
        ),
        failures=wire.failure_count,
        hold_expires=(
            to_millis(wire.hold_expire_time) if wire.HasField("hold_expire_time") else None
        ),
    )
    return LeaseEntry(lease, wire.trace_parent, _to_change(wire))


def _to_entry(wire: lpb.Transition) -> HistoryEntry:
    return HistoryEntry(
        at=to_millis(wire.record_time),
        state=_STATES[wire.state],
        reason=wire.reason,
        message=wire.message,
        attempt=wire.attempt,
        transition_id=wire.transition_id,
    )


def _to_spec(wire: lpb.Lease) -> LeaseSpec:
    work = wire.work
    return LeaseSpec(
        owner=wire.owner,
        project=wire.project,
        pool=wire.pool,
        terms=_to_terms(wire.terms),
        node_count=wire.node_count,
        amounts=ResourceVector(wire.amounts),
        duration_ms=span_to_millis(wire.duration),
        priority=wire.priority,
        preemptible=wire.preemptible,
        work=Work(
            tuple(work.command),
            _to_dict(work.environment),
            work.image,
            tuple(sorted(work.secrets)) if len(work.secrets) else (),
        ),
        on_failure=(
            OnFailure.RESTART if wire.on_failure == lpb.Lease.ON_FAILURE_RESTART else OnFailure.FAIL
        ),
        max_attempts=max(wire.max_attempts, 1),
        on_loss=OnLoss.KEEP if wire.on_loss == work_pb2.ON_LOSS_KEEP else OnLoss.STOP,
        dependencies=tuple(
            Dependency(
                bare(d.lease),
                DependencyCondition.ENDED
                if d.condition == lpb.Dependency.CONDITION_ENDED
                else DependencyCondition.SUCCEEDED,
            )
            for d in wire.dependencies
        ),
        labels=_to_dict(wire.labels),
        node_selector=_to_dict(wire.node_selector),
        spread=wire.spread,
        stop_grace_ms=span_to_millis(wire.stop_grace_duration),
    )


def _to_dict(wire: Mapping[str, str]) -> dict[str, str]:
    """Return a map as a dict; most are empty, and copying those is what takes long."""
    return dict(wire.items()) if len(wire) else {}


def _to_terms(wire: lpb.Terms) -> Terms:
    match wire.WhichOneof("kind"):
        case "immediate":
            return Immediate()
        case "advance":
            return Advance(to_millis(wire.advance.start_time))
        case "deadline":
            earliest = wire.deadline.earliest_start_time
            has_earliest = wire.deadline.HasField("earliest_start_time")
            return Deadline(
                to_millis(wire.deadline.deadline_time),
                to_millis(earliest) if has_earliest else None,
            )
        case _:
            return BestEffort()


def _to_change(wire: lpb.Lease) -> RequestedChange | None:
    change = wire.pending_change
    if not wire.HasField("pending_change") or change.verdict:
        return None
    return RequestedChange(
        change.change_id,
        span_to_millis(change.duration) if change.HasField("duration") else None,
        to_millis(change.start_time) if change.HasField("start_time") else None,
        change.node_count,
        change.priority if change.HasField("priority") else None,
    )


def from_transition(transition: Transition) -> apb.TransitionRequest:
    """Return a transition for the wire."""
    wire = apb.TransitionRequest(
        transition_id=transition.id,
        lease=f"leases/{transition.lease}",
        version=transition.version,
        state=from_state(transition.state),
        reason=transition.reason,
        message=transition.message,
        attempt=transition.attempt,
        placements=[
            lpb.Placement(rank=p.rank, node=f"nodes/{p.node}", interval=from_interval(p.interval))
            for p in transition.placements
        ],
        exit_code=transition.exit_code,
        preempted=transition.preempted,
        failed=transition.failed,
    )
    if transition.charge is not None:
        wire.charge_interval.CopyFrom(from_interval(transition.charge))
    if transition.predicted_start is not None:
        wire.predicted_start_time.CopyFrom(to_timestamp(transition.predicted_start))
    if transition.started is not None:
        wire.start_time.CopyFrom(to_timestamp(transition.started))
    if transition.ended is not None:
        wire.end_time.CopyFrom(to_timestamp(transition.ended))
    if transition.remaining_ms is not None:
        wire.remaining_duration.CopyFrom(to_duration(transition.remaining_ms))
    if transition.change is not None:
        wire.change_verdict.CopyFrom(_from_change(transition.change))
    return wire


def _from_change(verdict: ChangeVerdict) -> lpb.PendingChange:
    change = verdict.change
    wire = lpb.PendingChange(
        change_id=change.id,
        node_count=change.node_count,
        priority=change.priority,
        verdict=(
            lpb.PendingChange.VERDICT_GRANTED
            if verdict.granted
            else lpb.PendingChange.VERDICT_REFUSED
        ),
        reason=verdict.reason,
        message=verdict.message,
        counter_offers=[_from_offer(offer) for offer in verdict.offers],
    )
    if change.duration_ms is not None:
        wire.duration.CopyFrom(to_duration(change.duration_ms))
    if change.start is not None:
        wire.start_time.CopyFrom(to_timestamp(change.start))
    return wire


def _from_offer(offer: CounterOffer) -> lpb.CounterOffer:
    wire = lpb.CounterOffer(node_count=offer.node_count)
    if offer.start is not None:
        wire.start_time.CopyFrom(to_timestamp(offer.start))
    if offer.duration_ms is not None:
        wire.duration.CopyFrom(to_duration(offer.duration_ms))
    return wire


def from_prediction(prediction: Prediction) -> apb.Prediction:
    """Return a prediction for the wire."""
    wire = apb.Prediction(
        lease=f"leases/{prediction.lease}",
        queue_position=prediction.position,
        reason=prediction.reason,
        message=prediction.message,
    )
    if prediction.start is not None:
        wire.predicted_start_time.CopyFrom(to_timestamp(prediction.start))
    return wire
