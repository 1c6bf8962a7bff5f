"""A lease on the wire ⇄ the record that use cases decide on; the wire form is also what is stored.

Decides how a draft is made from what a caller sent (defaults filled in, output-only fields
dropped). Both ways are round-trip tested. Checking values is `validation`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tenure.admission.v1 import lease_pb2 as pb
from tenure.type.v1 import work_pb2
from tenure_admission.records import (
    ChangeVerdict,
    CounterOffer,
    Draft,
    LeaseRecord,
    PendingChange,
    StoredLease,
    etag_of,
)
from tenure_admission.wire_times import duration, interval, timestamp
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
from tenure_core.leases.states import WAITING, LeaseState
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import span_to_millis, to_interval, to_millis, to_timestamp

NAME_DEFAULT: Final = "default"
STOP_GRACE_MS_DEFAULT: Final[Millis] = 5_000
MAX_ATTEMPTS_DEFAULT: Final = 1

STATE_TO_WIRE: Final[Mapping[LeaseState, pb.Lease.State.ValueType]] = {
    state: pb.Lease.State.Value(f"STATE_{state.value}") for state in LeaseState
}
STATE_OF_WIRE: Final[Mapping[int, LeaseState]] = {
    number: state for state, number in STATE_TO_WIRE.items()
}
_ON_FAILURE: Final = {
    OnFailure.FAIL: pb.Lease.ON_FAILURE_FAIL,
    OnFailure.RESTART: pb.Lease.ON_FAILURE_RESTART,
}
_ON_LOSS: Final = {OnLoss.STOP: work_pb2.ON_LOSS_STOP, OnLoss.KEEP: work_pb2.ON_LOSS_KEEP}
_CONDITION: Final = {
    DependencyCondition.SUCCEEDED: pb.Dependency.CONDITION_SUCCEEDED,
    DependencyCondition.ENDED: pb.Dependency.CONDITION_ENDED,
}
_VERDICT: Final = {
    ChangeVerdict.UNDECIDED: pb.PendingChange.VERDICT_UNSPECIFIED,
    ChangeVerdict.GRANTED: pb.PendingChange.VERDICT_GRANTED,
    ChangeVerdict.REFUSED: pb.PendingChange.VERDICT_REFUSED,
}
_VERDICT_OF: Final = {number: verdict for verdict, number in _VERDICT.items()}

# Everything from field 30 on is the service's to say.
_OUTPUT_ONLY: Final = tuple(
    field.name
    for field in pb.Lease.DESCRIPTOR.fields
    if field.number >= 30 or field.name in ("name", "owner")
)


def name_of(lease_id: str) -> str:
    """Return `leases/{id}`."""
    return f"leases/{lease_id}"


def id_of(name: str) -> str:
    """Return the id in `leases/{id}`, "" for any other text."""
    return name[7:] if name.startswith("leases/") else ""


def draft(
    wanted: pb.Lease, *, lease_id: str, owner: str, now: Millis, trace_parent: str, sees_all: bool
) -> Draft:
    """Return the draft of a valid request's lease. `wanted` is changed: defaults are filled in."""
    for field in _OUTPUT_ONLY:
        wanted.ClearField(field)  # type: ignore[arg-type]  # the names come from the descriptor
    wanted.name, wanted.owner = name_of(lease_id), owner
    wanted.project = wanted.project or NAME_DEFAULT
    wanted.pool = wanted.pool or NAME_DEFAULT
    if not wanted.HasField("preemptible"):
        wanted.preemptible = wanted.terms.WhichOneof("kind") == "best_effort"
    wanted.on_failure = wanted.on_failure or pb.Lease.ON_FAILURE_FAIL
    wanted.on_loss = wanted.on_loss or work_pb2.ON_LOSS_STOP
    wanted.max_attempts = wanted.max_attempts or MAX_ATTEMPTS_DEFAULT
    if not wanted.HasField("stop_grace_duration"):
        wanted.stop_grace_duration.seconds = STOP_GRACE_MS_DEFAULT // 1_000
    for dependency in wanted.dependencies:
        dependency.condition = dependency.condition or pb.Dependency.CONDITION_SUCCEEDED
    wanted.trace_parent = wanted.trace_parent or trace_parent
    wanted.state = pb.Lease.STATE_PENDING
    wanted.version, wanted.etag = 1, etag_of(1)
    seconds, rest = divmod(now, 1_000)
    wanted.create_time.seconds, wanted.create_time.nanos = seconds, rest * 1_000_000
    wanted.update_time.seconds, wanted.update_time.nanos = seconds, rest * 1_000_000
    wanted.remaining_duration.CopyFrom(wanted.duration)
    return Draft(
        id=lease_id,
        owner=owner,
        project=wanted.project,
        pool=wanted.pool,
        node_count=wanted.node_count,
        amounts={kind: amount for kind, amount in wanted.amounts.items() if amount},
        created=now,
        body=wanted.SerializeToString(),
        dependencies=tuple(id_of(each.lease) for each in wanted.dependencies),
        labels=dict(wanted.labels),
        sees_all=sees_all,
    )


def wire_lease(stored: StoredLease) -> pb.Lease:
    """Return a stored lease for an answer; while it waits, with what its leader expects of it."""
    wire = pb.Lease.FromString(stored.body)
    forecast = stored.forecast
    if forecast is not None and stored.state in WAITING:
        if forecast.predicted_start is not None:
            wire.predicted_start_time.CopyFrom(to_timestamp(forecast.predicted_start))
        if forecast.reason:
            wire.reason, wire.message = forecast.reason, forecast.message
    return wire


def encode(record: LeaseRecord) -> bytes:
    """Return the bytes in which a record is stored, sent and put into the change feed."""
    return lease_to_wire(record).SerializeToString()


def decode(body: bytes) -> LeaseRecord:
    """Return the record that `encode` (or a draft) made the bytes of."""
    return lease_of_wire(pb.Lease.FromString(body))


def lease_to_wire(record: LeaseRecord) -> pb.Lease:
    """Return the lease with everything that the book holds of it."""
    lease, spec = record.lease, record.lease.spec
    return pb.Lease(
        name=name_of(lease.id),
        owner=spec.owner,
        project=spec.project,
        pool=spec.pool,
        terms=terms_to_wire(spec.terms),
        node_count=spec.node_count,
        amounts=dict(spec.amounts),
        duration=duration(spec.duration_ms),
        priority=spec.priority,
        preemptible=spec.preemptible,
        work=_work_to_wire(spec.work),
        on_failure=_ON_FAILURE[spec.on_failure],
        max_attempts=spec.max_attempts,
        on_loss=_ON_LOSS[spec.on_loss],
        dependencies=[
            pb.Dependency(lease=name_of(each.lease), condition=_CONDITION[each.condition])
            for each in spec.dependencies
        ],
        labels=spec.labels,
        node_selector=spec.node_selector,
        spread=spec.spread,
        stop_grace_duration=duration(spec.stop_grace_ms),
        trace_parent=record.trace_parent,
        state=STATE_TO_WIRE[lease.state],
        reason=lease.reason,
        message=lease.message,
        version=lease.version,
        attempt=lease.attempt,
        etag=record.etag,
        create_time=timestamp(lease.created),
        update_time=timestamp(record.updated),
        predicted_start_time=timestamp(lease.predicted_start),
        start_time=timestamp(lease.started),
        end_time=timestamp(lease.ended),
        remaining_duration=duration(lease.remaining_ms),
        placements=[_placement_to_wire(each) for each in lease.placements],
        exit_code=lease.exit_code,
        preemption_count=lease.preemptions,
        pending_change=None if record.change is None else change_to_wire(record.change),
        history=[_entry_to_wire(each) for each in lease.history],
        charge_interval=interval(record.charge),
    )


def lease_of_wire(wire: pb.Lease) -> LeaseRecord:
    """Return the record of a lease as stored."""
    spec = LeaseSpec(
        owner=wire.owner,
        project=wire.project,
        pool=wire.pool,
        terms=terms_of_wire(wire.terms),
        node_count=wire.node_count,
        amounts=ResourceVector(wire.amounts),
        duration_ms=span_to_millis(wire.duration),
        priority=wire.priority,
        preemptible=wire.preemptible,
        work=Work(tuple(wire.work.command), dict(wire.work.environment), wire.work.image),
        on_failure=(
            OnFailure.RESTART if wire.on_failure == pb.Lease.ON_FAILURE_RESTART else OnFailure.FAIL
        ),
        max_attempts=wire.max_attempts,
        on_loss=OnLoss.KEEP if wire.on_loss == work_pb2.ON_LOSS_KEEP else OnLoss.STOP,
        dependencies=tuple(_dependency_of_wire(each) for each in wire.dependencies),
        labels=dict(wire.labels),
        node_selector=dict(wire.node_selector),
        spread=wire.spread,
        stop_grace_ms=span_to_millis(wire.stop_grace_duration),
    )
    lease = Lease(
        id=id_of(wire.name),
        spec=spec,
        state=STATE_OF_WIRE[wire.state],
        created=to_millis(wire.create_time),
        version=wire.version,
        attempt=wire.attempt,
        reason=wire.reason,
        message=wire.message,
        predicted_start=_instant_in(wire, "predicted_start_time"),
        started=_instant_in(wire, "start_time"),
        ended=_instant_in(wire, "end_time"),
        remaining_ms=span_to_millis(wire.remaining_duration),
        placements=tuple(placement_of_wire(each) for each in wire.placements),
        exit_code=wire.exit_code if wire.HasField("exit_code") else None,
        preemptions=wire.preemption_count,
        history=tuple(_entry_of_wire(each) for each in wire.history),
    )
    return LeaseRecord(
        lease=lease,
        updated=to_millis(wire.update_time),
        trace_parent=wire.trace_parent,
        charge=to_interval(wire.charge_interval) if wire.HasField("charge_interval") else None,
        change=change_of_wire(wire.pending_change) if wire.HasField("pending_change") else None,
    )


def _instant_in(wire: pb.Lease, field: str) -> Millis | None:
    return to_millis(getattr(wire, field)) if wire.HasField(field) else None  # type: ignore[arg-type]


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


def _work_to_wire(work: Work) -> work_pb2.Work | None:
    if work == Work():
        return None
    return work_pb2.Work(command=work.command, environment=work.environment, image=work.image)


def _dependency_of_wire(wire: pb.Dependency) -> Dependency:
    ended = wire.condition == pb.Dependency.CONDITION_ENDED
    condition = DependencyCondition.ENDED if ended else DependencyCondition.SUCCEEDED
    return Dependency(id_of(wire.lease), condition)


def _placement_to_wire(placement: Placement) -> pb.Placement:
    return pb.Placement(
        rank=placement.rank,
        node=f"nodes/{placement.node}",
        interval=interval(placement.interval),
    )


def placement_of_wire(wire: pb.Placement) -> Placement:
    """Return one slot of a lease on one node. Raises ValueError for an empty span."""
    return Placement(wire.rank, wire.node.removeprefix("nodes/"), to_interval(wire.interval))


def _entry_to_wire(entry: HistoryEntry) -> pb.Transition:
    return pb.Transition(
        transition_id=entry.transition_id,
        record_time=timestamp(entry.at),
        state=STATE_TO_WIRE[entry.state],
        reason=entry.reason,
        message=entry.message,
        attempt=entry.attempt,
    )


def _entry_of_wire(wire: pb.Transition) -> HistoryEntry:
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
