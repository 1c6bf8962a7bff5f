"""Requests ⇄ what use cases take and return, besides the lease itself (`convert`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission import convert, convert_parts
from tenure_admission.changes import WantedChange
from tenure_admission.convert_quotas import excess_to_wire
from tenure_admission.lease_validation import MESSAGE_LENGTH_MAX
from tenure_admission.pages import PAGE_BYTES_MAX
from tenure_admission.ports import FeedBookmark, LeaseEvent, Listing, TransitionOutcome
from tenure_admission.recent import Recent
from tenure_admission.records import Forecast
from tenure_admission.transitions import Transition
from tenure_admission.usecases.explaining import Explanation
from tenure_admission.usecases.obstacles import Obstacle
from tenure_admission.usecases.predicates import PredicateResult
from tenure_admission.wire_times import timestamp
from tenure_core.admission.remedies import Remedy, Suggestion
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import span_to_millis, to_duration, to_interval, to_millis


def listing_of(
    request: calls.ListLeasesRequest, limit: int, cursor: list[str | int] | None
) -> Listing:
    """Return what a valid list request asks for, its owner apart."""
    return Listing(
        limit=limit,
        cursor=None if cursor is None else (int(cursor[0]), str(cursor[1])),
        project=request.project,
        pool=request.pool,
        states=frozenset(convert_parts.STATE_OF_WIRE[state] for state in request.states),
        created=(
            to_interval(request.create_interval) if request.HasField("create_interval") else None
        ),
        labels=dict(request.labels),
    )


def wanted_of(request: calls.UpdateLeaseRequest, paths: Iterable[str]) -> WantedChange:
    """Return the new values of the fields in an update's mask."""
    lease, chosen = request.lease, set(paths)
    return WantedChange(
        duration_ms=span_to_millis(lease.duration) if "duration" in chosen else None,
        terms=convert_parts.terms_of_wire(lease.terms) if "terms" in chosen else None,
        node_count=lease.node_count if "node_count" in chosen else None,
        priority=lease.priority if "priority" in chosen else None,
        labels=dict(lease.labels) if "labels" in chosen else None,
        etag=lease.etag,
    )


def transition_of(wire: calls.TransitionRequest) -> Transition:
    """Return a transition as the leader asks for it."""

    def instant(field: str) -> Millis | None:
        return to_millis(getattr(wire, field)) if wire.HasField(field) else None  # type: ignore[arg-type]

    decides = wire.HasField("change_verdict")
    return Transition(
        transition_id=wire.transition_id,
        lease=convert_parts.id_of(wire.lease),
        version=wire.version,
        state=convert_parts.STATE_OF_WIRE[wire.state],
        attempt=wire.attempt,
        reason=wire.reason,
        message=wire.message[:MESSAGE_LENGTH_MAX],
        charge=to_interval(wire.charge_interval) if wire.HasField("charge_interval") else None,
        placements=tuple(convert_parts.placement_of_wire(each) for each in wire.placements),
        predicted_start=instant("predicted_start_time"),
        started=instant("start_time"),
        ended=instant("end_time"),
        remaining_ms=(
            span_to_millis(wire.remaining_duration) if wire.HasField("remaining_duration") else None
        ),
        exit_code=wire.exit_code if wire.HasField("exit_code") else None,
        preempted=wire.preempted,
        failed=wire.failed,
        verdict=convert_parts.change_of_wire(wire.change_verdict) if decides else None,
    )


def forecasts_of(wire: Iterable[calls.Prediction], now: Millis) -> dict[str, Forecast]:
    """Return what the leader expects, by lease; of two for one lease the last counts."""
    return {
        convert_parts.id_of(each.lease): Forecast(
            evaluated=now,
            predicted_start=(
                to_millis(each.predicted_start_time)
                if each.HasField("predicted_start_time")
                else None
            ),
            queue_position=each.queue_position,
            reason=each.reason,
            message=each.message[:MESSAGE_LENGTH_MAX],
        )
        for each in wire
    }


def verdicts_to_wire(
    asked: Iterable[calls.TransitionRequest], outcomes: Iterable[TransitionOutcome]
) -> calls.RecordTransitionsResponse:
    """Return a verdict for each transition, with the lease as it is now.

    Leases that would make the answer larger than a message may be are left out: the transitions
    are recorded, and an answer that cannot be sent would be asked for again for ever.
    """
    response = calls.RecordTransitionsResponse()
    size = 0
    for request, outcome in zip(asked, outcomes, strict=True):
        verdict = response.verdicts.add(transition_id=request.transition_id)
        if outcome.refusal is not None:
            verdict.reason, verdict.message = outcome.refusal.reason, outcome.refusal.message
            if outcome.refusal.excess is not None:
                verdict.quota_excess.CopyFrom(excess_to_wire(outcome.refusal.excess))
        size += len(outcome.lease or b"")
        if outcome.lease is not None and size <= PAGE_BYTES_MAX:
            verdict.lease.ParseFromString(outcome.lease)
    return response


def explanation_to_wire(explanation: Explanation) -> calls.ExplainLeaseResponse:
    """Return an explanation."""
    forecast, outlook = explanation.forecast, explanation.outlook
    position = outlook.position if outlook else forecast.queue_position if forecast else 0
    predicted = explanation.predicted_start
    return calls.ExplainLeaseResponse(
        lease=convert.wire_lease(explanation.lease),
        sentences=explanation.sentences,
        obstacles=[_obstacle_to_wire(each) for each in explanation.obstacles],
        queue_position=position,
        evaluate_time=timestamp(forecast.evaluated) if forecast else None,
        queue_length=outlook.total if outlook else 0,
        predicted_start_time=None if predicted is None else timestamp(predicted),
        predicates=[_predicate_to_wire(each) for each in explanation.predicates],
        remedies=[_remedy_to_wire(each, text) for each, text in explanation.remedies],
    )


def _predicate_to_wire(result: PredicateResult) -> calls.PredicateResult:
    return calls.PredicateResult(
        predicate=calls.PredicateResult.Predicate.Value(f"PREDICATE_{result.predicate}"),
        blocks=result.blocks,
        reason=result.reason,
        message=result.message,
        since_time=None if result.since is None else timestamp(result.since),
    )


def _remedy_to_wire(each: Suggestion, text: str) -> calls.Remedy:
    other_pool = each.remedy is Remedy.OTHER_POOL
    return calls.Remedy(
        kind=calls.Remedy.Kind.Value(f"KIND_{each.remedy.value}"),
        node_count=each.terms.node_count,
        duration=to_duration(each.terms.duration_ms),
        pool=f"pools/{each.elsewhere}" if other_pool else "",
        project=each.elsewhere if each.remedy is Remedy.OTHER_PROJECT else "",
        start_time=timestamp(each.start),
        message=text,
    )


def _obstacle_to_wire(obstacle: Obstacle) -> calls.Obstacle:
    return calls.Obstacle(
        reason=obstacle.reason,
        message=obstacle.message,
        subject=obstacle.subject,
        remedy=obstacle.remedy,
    )


def event_to_wire(event: LeaseEvent | FeedBookmark) -> calls.WatchLeasesResponse:
    """Return a change, or a bookmark, which has no lease."""
    lease = lease_of(event.body) if isinstance(event, LeaseEvent) else None
    return calls.WatchLeasesResponse(lease=lease, resume_token=event.position.token())


# Every watcher asks for the same few newest changes.
_LEASES: Final = Recent(pb.Lease.FromString)


def lease_of(body: bytes) -> pb.Lease:
    """Return the lease in the bytes; shared, so not to be changed."""
    return _LEASES.of(body)


def heading_of(body: bytes) -> tuple[str, str, str]:
    """Return owner, project and pool of an encoded lease."""
    lease = lease_of(body)
    return lease.owner, lease.project, lease.pool
