"""A lease on the wire ⇄ the record that use cases decide on; the wire form is also what is stored.

Decides how a draft is made from what a caller sent (defaults filled in, output-only fields
dropped). Both ways are round-trip tested. Checking values is `validation`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

from google.protobuf.message import Message

from tenure.admission.v1 import lease_pb2 as pb
from tenure.type.v1 import work_pb2
from tenure_admission import convert_parts as parts
from tenure_admission.auditing import hidden
from tenure_admission.recent import Recent
from tenure_admission.records import (
    Draft,
    LeaseRecord,
    StoredLease,
    etag_of,
)
from tenure_admission.wire_times import duration, interval, timestamp
from tenure_core.leases.lease import (
    Lease,
    LeaseSpec,
    OnFailure,
    OnLoss,
)
from tenure_core.leases.states import WAITING
from tenure_core.resources import ResourceVector
from tenure_core.secrets import Encrypted
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import span_to_millis, to_interval, to_millis, to_timestamp

T = TypeVar("T")

NAME_DEFAULT: Final = "default"
STOP_GRACE_MS_DEFAULT: Final[Millis] = 5_000
MAX_ATTEMPTS_DEFAULT: Final = 1

# Everything from field 30 on is the service's to say.
_OUTPUT_ONLY: Final = frozenset(
    field
    for field in pb.Lease.DESCRIPTOR.fields
    if field.number >= 30 or field.name in ("name", "owner")
)


def draft(
    wanted: pb.Lease,
    *,
    lease_id: str,
    owner: str,
    now: Millis,
    trace_parent: str = "",
    id_chosen: bool = False,
    sees_all: bool = False,
    secrets: Encrypted | None = None,
) -> Draft:
    """Return the draft of a valid request's lease. `wanted` is changed: defaults are filled in."""
    for field, _ in wanted.ListFields():
        if field in _OUTPUT_ONLY:
            wanted.ClearField(field.name)  # type: ignore[arg-type]  # a field of the message
    wanted.MergeFrom(_new(owner, now))
    wanted.name = parts.name_of(lease_id)
    wanted.project = wanted.project or NAME_DEFAULT
    wanted.pool = wanted.pool or NAME_DEFAULT
    if not wanted.HasField("preemptible"):
        wanted.preemptible = wanted.terms.WhichOneof("kind") == "best_effort"
    wanted.on_failure = wanted.on_failure or pb.Lease.ON_FAILURE_FAIL
    wanted.on_loss = wanted.on_loss or work_pb2.ON_LOSS_STOP
    wanted.max_attempts = wanted.max_attempts or MAX_ATTEMPTS_DEFAULT
    if not wanted.HasField("stop_grace_duration"):
        wanted.stop_grace_duration.seconds = STOP_GRACE_MS_DEFAULT // 1_000
    dependencies = list(wanted.dependencies)
    for dependency in dependencies:
        dependency.condition = dependency.condition or pb.Dependency.CONDITION_SUCCEEDED
    wanted.trace_parent = wanted.trace_parent or trace_parent
    parts.begin_hold(wanted, now)
    amounts = wanted.amounts
    wanted.remaining_duration.CopyFrom(wanted.duration)
    return Draft(
        id=lease_id,
        owner=owner,
        project=wanted.project,
        pool=wanted.pool,
        node_count=wanted.node_count,
        amounts={kind: amount for kind in amounts if (amount := amounts[kind])},
        created=now,
        body=wanted.SerializeToString(),
        dependencies=tuple([parts.id_of(each.lease) for each in dependencies]),
        labels=dict(wanted.labels),
        id_chosen=id_chosen,
        sees_all=sees_all,
        hidden_body=hidden(wanted),
        secrets=secrets,
    )


# All items of a batch have the same.
@lru_cache(maxsize=16)
def _new(owner: str, now: Millis) -> pb.Lease:
    """Return what every new lease of an owner says at an instant; not to be changed."""
    at = to_timestamp(now)
    return pb.Lease(
        owner=owner,
        state=pb.Lease.STATE_PENDING,
        version=1,
        etag=etag_of(1),
        create_time=at,
        update_time=at,
    )


def wire_lease(stored: StoredLease) -> pb.Lease:
    """Return a stored lease for an answer; while it waits, with what its leader expects of it."""
    wire = pb.Lease.FromString(stored.body)
    forecast = stored.forecast
    if forecast is not None and stored.state in WAITING:
        if forecast.predicted_start is not None:
            wire.predicted_start_time.CopyFrom(to_timestamp(forecast.predicted_start))
        elif forecast.evaluated >= to_millis(wire.update_time):
            wire.ClearField("predicted_start_time")
        if forecast.reason:
            wire.reason, wire.message = forecast.reason, forecast.message
    return wire


def encode(record: LeaseRecord) -> bytes:
    """Return the bytes in which a record is stored, sent and put into the change feed."""
    body = lease_to_wire(record).SerializeToString()
    _RECORDS.put(body, record)
    return body


def encode_after(body: bytes, before: LeaseRecord, after: LeaseRecord) -> bytes:
    """Return the bytes of `after`, made from those of `before` where what was asked for stayed.

    A transition changes a few fields of many; writing those is a quarter of the work.
    """
    lease, former = after.lease, before.lease
    appended = len(lease.history) - len(former.history)
    if lease.spec is not former.spec or lease.history[: len(former.history)] != former.history:
        return encode(after)
    wire = pb.Lease.FromString(body)
    wire.state = parts.STATE_TO_WIRE[lease.state]
    wire.reason, wire.message = lease.reason, lease.message
    wire.version, wire.attempt, wire.etag = lease.version, lease.attempt, after.etag
    wire.preemption_count, wire.failure_count = lease.preemptions, lease.failures
    _set(wire, "update_time", before.updated, after.updated, timestamp)
    _set(wire, "predicted_start_time", former.predicted_start, lease.predicted_start, timestamp)
    _set(wire, "start_time", former.started, lease.started, timestamp)
    _set(wire, "end_time", former.ended, lease.ended, timestamp)
    _set(wire, "hold_expire_time", former.hold_expires, lease.hold_expires, timestamp)
    _set(wire, "remaining_duration", former.remaining_ms, lease.remaining_ms, duration)
    _set(wire, "pending_change", before.change, after.change, parts.change_to_wire)
    _set(wire, "charge_interval", before.charge, after.charge, interval)
    if lease.exit_code is None:
        wire.ClearField("exit_code")
    else:
        wire.exit_code = lease.exit_code
    if lease.placements is not former.placements:
        del wire.placements[:]
        wire.placements.extend(parts.placement_to_wire(each) for each in lease.placements)
    if appended:
        wire.history.extend(parts.entry_to_wire(each) for each in lease.history[-appended:])
    changed = wire.SerializeToString()
    _RECORDS.put(changed, after)
    return changed


def _set(
    wire: pb.Lease,
    field: str,
    before: T | None,
    after: T | None,
    to_wire: Callable[[T], Message | None],
) -> None:
    """Set or clear one field if it changed."""
    if after == before:
        return
    message = None if after is None else to_wire(after)
    if message is None:
        wire.ClearField(field)  # type: ignore[arg-type]  # one of the message's own fields
    else:
        getattr(wire, field).CopyFrom(message)


def decode(body: bytes) -> LeaseRecord:
    """Return the record that `encode` (or a draft) made the bytes of."""
    return _RECORDS.of(body)


def lease_to_wire(record: LeaseRecord) -> pb.Lease:
    """Return the lease with everything that the book holds of it."""
    lease, spec = record.lease, record.lease.spec
    return pb.Lease(
        name=parts.name_of(lease.id),
        owner=spec.owner,
        project=spec.project,
        pool=spec.pool,
        terms=parts.terms_to_wire(spec.terms),
        node_count=spec.node_count,
        amounts=dict(spec.amounts),
        duration=duration(spec.duration_ms),
        priority=spec.priority,
        preemptible=spec.preemptible,
        work=parts.work_to_wire(spec.work),
        on_failure=parts.ON_FAILURE[spec.on_failure],
        max_attempts=spec.max_attempts,
        on_loss=parts.ON_LOSS[spec.on_loss],
        dependencies=[parts.dependency_to_wire(each) for each in spec.dependencies],
        labels=spec.labels,
        node_selector=spec.node_selector,
        spread=spec.spread,
        stop_grace_duration=duration(spec.stop_grace_ms),
        trace_parent=record.trace_parent,
        state=parts.STATE_TO_WIRE[lease.state],
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
        placements=[parts.placement_to_wire(each) for each in lease.placements],
        exit_code=lease.exit_code,
        preemption_count=lease.preemptions,
        failure_count=lease.failures,
        pending_change=None if record.change is None else parts.change_to_wire(record.change),
        history=[parts.entry_to_wire(each) for each in lease.history],
        charge_interval=interval(record.charge),
        hold_expire_time=timestamp(lease.hold_expires),
    )


def lease_of_wire(wire: pb.Lease) -> LeaseRecord:
    """Return the record of a lease as stored."""
    spec = LeaseSpec(
        owner=wire.owner,
        project=wire.project,
        pool=wire.pool,
        terms=parts.terms_of_wire(wire.terms),
        node_count=wire.node_count,
        amounts=ResourceVector(wire.amounts),
        duration_ms=span_to_millis(wire.duration),
        priority=wire.priority,
        preemptible=wire.preemptible,
        work=parts.work_of_wire(wire.work),
        on_failure=(
            OnFailure.RESTART if wire.on_failure == pb.Lease.ON_FAILURE_RESTART else OnFailure.FAIL
        ),
        max_attempts=wire.max_attempts,
        on_loss=OnLoss.KEEP if wire.on_loss == work_pb2.ON_LOSS_KEEP else OnLoss.STOP,
        dependencies=tuple(parts.dependency_of_wire(each) for each in wire.dependencies),
        labels=dict(wire.labels),
        node_selector=dict(wire.node_selector),
        spread=wire.spread,
        stop_grace_ms=span_to_millis(wire.stop_grace_duration),
    )
    lease = Lease(
        id=parts.id_of(wire.name),
        spec=spec,
        state=parts.STATE_OF_WIRE[wire.state],
        created=to_millis(wire.create_time),
        version=wire.version,
        attempt=wire.attempt,
        reason=wire.reason,
        message=wire.message,
        predicted_start=parts.instant_in(wire, "predicted_start_time"),
        started=parts.instant_in(wire, "start_time"),
        ended=parts.instant_in(wire, "end_time"),
        remaining_ms=span_to_millis(wire.remaining_duration),
        placements=tuple(parts.placement_of_wire(each) for each in wire.placements),
        exit_code=wire.exit_code if wire.HasField("exit_code") else None,
        preemptions=wire.preemption_count,
        failures=wire.failure_count,
        history=tuple(parts.entry_of_wire(each) for each in wire.history),
        hold_expires=parts.instant_in(wire, "hold_expire_time"),
    )
    return LeaseRecord(
        lease=lease,
        updated=to_millis(wire.update_time),
        trace_parent=wire.trace_parent,
        charge=to_interval(wire.charge_interval) if wire.HasField("charge_interval") else None,
        change=parts.change_of_wire(wire.pending_change)
        if wire.HasField("pending_change")
        else None,
    )


# A leader changes a lease several times in a row.
_RECORDS: Final = Recent(lambda body: lease_of_wire(pb.Lease.FromString(body)))
