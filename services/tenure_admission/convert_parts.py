"""The parts of a lease on the wire ⇄ the core's values: terms, work, placements, history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tenure.admission.v1 import lease_pb2 as pb
from tenure.type.v1 import work_pb2
from tenure_admission.records import ChangeVerdict, CounterOffer, PendingChange
from tenure_admission.wire_times import duration, interval, timestamp
from tenure_core.leases.lease import (
    Advance,
    BestEffort,
    Deadline,
    Dependency,
    DependencyCondition,
    HistoryEntry,
    Immediate,
    OnFailure,
    OnLoss,
    Placement,
    Terms,
    Work,
)
from tenure_core.leases.states import LeaseState
from tenure_core.secrets import HIDDEN
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import span_to_millis, to_interval, to_millis, to_timestamp

STATE_TO_WIRE: Final[Mapping[LeaseState, pb.Lease.State.ValueType]] = {
    state: pb.Lease.State.Value(f"STATE_{state.value}") for state in LeaseState
}
STATE_OF_WIRE: Final[Mapping[int, LeaseState]] = {
    number: state for state, number in STATE_TO_WIRE.items()
}
ON_FAILURE: Final = {
    OnFailure.FAIL: pb.Lease.ON_FAILURE_FAIL,
    OnFailure.RESTART: pb.Lease.ON_FAILURE_RESTART,
}
ON_LOSS: Final = {OnLoss.STOP: work_pb2.ON_LOSS_STOP, OnLoss.KEEP: work_pb2.ON_LOSS_KEEP}
CONDITION: Final = {
    DependencyCondition.SUCCEEDED: pb.Dependency.CONDITION_SUCCEEDED,
    DependencyCondition.ENDED: pb.Dependency.CONDITION_ENDED,
}
_VERDICT: Final = {
    ChangeVerdict.UNDECIDED: pb.PendingChange.VERDICT_UNSPECIFIED,
    ChangeVerdict.GRANTED: pb.PendingChange.VERDICT_GRANTED,
    ChangeVerdict.REFUSED: pb.PendingChange.VERDICT_REFUSED,
}
_VERDICT_OF: Final = {number: verdict for verdict, number in _VERDICT.items()}


def name_of(lease_id: str) -> str:
    """Return `leases/{id}`."""
    return f"leases/{lease_id}"


def instant_in(wire: pb.Lease, field: str) -> Millis | None:
    """Return an instant that a lease on the wire says, None when it does not."""
    return to_millis(getattr(wire, field)) if wire.HasField(field) else None  # type: ignore[arg-type]


def begin_hold(wanted: pb.Lease, now: Millis) -> None:
    """Write into a new lease until when it must be confirmed, for how long it may take."""
    if wanted.HasField("hold_duration"):
        until = now + span_to_millis(wanted.hold_duration)
        wanted.hold_expire_time.CopyFrom(to_timestamp(until))
        wanted.ClearField("hold_duration")


def id_of(name: str) -> str:
    """Return the id in `leases/{id}`, "" for any other text."""
    return name[7:] if name.startswith("leases/") else ""


def dependency_to_wire(dependency: Dependency) -> pb.Dependency:
    """Return one dependency."""
    return pb.Dependency(lease=name_of(dependency.lease), condition=CONDITION[dependency.condition])


def terms_to_wire(terms: Terms) -> pb.Terms:
    """Return the terms as one of the four kinds."""
    match terms:
        case Immediate():
            return pb.Terms(immediate=pb.ImmediateTerms())
        case BestEffort():
            return pb.Terms(best_effort=pb.BestEffortTerms())
        case Advance(start):
            return pb.Terms(advance=pb.AdvanceTerms(start_time=timestamp(start)))
        case Deadline(deadline, earliest):
            kind = pb.DeadlineTerms(
                deadline_time=timestamp(deadline), earliest_start_time=timestamp(earliest)
            )
            return pb.Terms(deadline=kind)


def terms_of_wire(wire: pb.Terms) -> Terms:
    """Return the terms; one of the kinds must be set."""
    match wire.WhichOneof("kind"):
        case "immediate":
            return Immediate()
        case "best_effort":
            return BestEffort()
        case "advance":
            return Advance(to_millis(wire.advance.start_time))
        case "deadline":
            kind = wire.deadline
            has_earliest = kind.HasField("earliest_start_time")
            earliest = to_millis(kind.earliest_start_time) if has_earliest else None
            return Deadline(to_millis(kind.deadline_time), earliest)
        case _:
            raise AssertionError("validation lets no terms without a kind through")


def work_to_wire(work: Work) -> work_pb2.Work | None:
    """Return what to run, None for nothing."""
    if work == Work():
        return None
    return work_pb2.Work(
        command=work.command,
        environment=work.environment,
        image=work.image,
        secrets=dict.fromkeys(work.secrets, HIDDEN),
    )


def work_of_wire(wire: work_pb2.Work) -> Work:
    """Return what to run."""
    secrets = tuple(sorted(wire.secrets)) if len(wire.secrets) else ()
    return Work(tuple(wire.command), dict(wire.environment), wire.image, secrets)


def dependency_of_wire(wire: pb.Dependency) -> Dependency:
    """Return one dependency."""
    ended = wire.condition == pb.Dependency.CONDITION_ENDED
    condition = DependencyCondition.ENDED if ended else DependencyCondition.SUCCEEDED
    return Dependency(id_of(wire.lease), condition)


def placement_to_wire(placement: Placement) -> pb.Placement:
    """Return one slot of a lease on one node."""
    return pb.Placement(
        rank=placement.rank,
        node=f"nodes/{placement.node}",
        interval=interval(placement.interval),
    )


def placement_of_wire(wire: pb.Placement) -> Placement:
    """Return one slot of a lease on one node. Raises ValueError for an empty span."""
    return Placement(wire.rank, wire.node.removeprefix("nodes/"), to_interval(wire.interval))


def entry_to_wire(entry: HistoryEntry) -> pb.Transition:
    """Return one recorded transition."""
    return pb.Transition(
        transition_id=entry.transition_id,
        record_time=timestamp(entry.at),
        state=STATE_TO_WIRE[entry.state],
        reason=entry.reason,
        message=entry.message,
        attempt=entry.attempt,
    )


def entry_of_wire(wire: pb.Transition) -> HistoryEntry:
    """Return one recorded transition."""
    return HistoryEntry(
        at=to_millis(wire.record_time),
        state=STATE_OF_WIRE[wire.state],
        reason=wire.reason,
        message=wire.message,
        attempt=wire.attempt,
        transition_id=wire.transition_id,
    )


def change_to_wire(change: PendingChange) -> pb.PendingChange:
    """Return a pending change with the leader's verdict, where there is one."""
    return pb.PendingChange(
        change_id=change.change_id,
        duration=duration(change.duration_ms),
        start_time=timestamp(change.start),
        node_count=change.node_count,
        priority=change.priority,
        request_time=timestamp(change.requested),
        verdict=_VERDICT[change.verdict],
        reason=change.reason,
        message=change.message,
        counter_offers=[
            pb.CounterOffer(
                start_time=timestamp(offer.start),
                duration=duration(offer.duration_ms),
                node_count=offer.node_count,
                pool=offer.pool,
            )
            for offer in change.counter_offers
        ],
    )


def change_of_wire(wire: pb.PendingChange) -> PendingChange:
    """Return a pending change, also as a leader sends it back with a verdict."""
    return PendingChange(
        change_id=wire.change_id,
        requested=to_millis(wire.request_time),
        duration_ms=span_to_millis(wire.duration) if wire.HasField("duration") else None,
        start=to_millis(wire.start_time) if wire.HasField("start_time") else None,
        node_count=wire.node_count,
        priority=wire.priority if wire.HasField("priority") else None,
        verdict=_VERDICT_OF[wire.verdict],
        reason=wire.reason,
        message=wire.message,
        counter_offers=tuple(
            CounterOffer(
                to_millis(offer.start_time) if offer.HasField("start_time") else None,
                span_to_millis(offer.duration) if offer.HasField("duration") else None,
                offer.node_count,
                offer.pool,
            )
            for offer in wire.counter_offers
        ),
    )
