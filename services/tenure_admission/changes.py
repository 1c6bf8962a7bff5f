"""Changes that owners ask for: at once while a lease waits, through the leader once it holds.

Decides which, and what a granted change does to the terms. Whether a change is granted is the
leader's decision; whether its values are within limits is `validation`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tenure_admission.records import ChangeVerdict, LeaseRecord, PendingChange
from tenure_core.errors import Conflict, Invalid, Violation, WrongState
from tenure_core.leases.lease import Advance, Deadline, HistoryEntry, Lease, LeaseSpec, Terms
from tenure_core.leases.states import ENDED, WAITING, LeaseState
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class WantedChange:
    """New values of the fields in an update's mask; None where a field is to stay."""

    duration_ms: Millis | None = None
    terms: Terms | None = None
    node_count: int | None = None
    priority: int | None = None
    labels: Mapping[str, str] | None = None
    etag: str = ""


def check_etag(record: LeaseRecord, etag: str) -> None:
    """Raise Conflict ETAG_MISMATCH unless `etag` is empty or the record's."""
    if etag and etag != record.etag:
        raise Conflict(
            "ETAG_MISMATCH",
            f"leases/{record.lease.id} has changed since; read it again.",
            lease=record.lease.id,
            etag=record.etag,
        )


def touched(record: LeaseRecord, lease: Lease, now: Millis) -> LeaseRecord:
    """Return the record with the lease changed: its version grows with every write."""
    return replace(record, lease=replace(lease, version=record.lease.version + 1), updated=now)


def update(record: LeaseRecord, wanted: WantedChange, change_id: str, now: Millis) -> LeaseRecord:
    """Return the record after an owner's update; the same one when nothing would change.

    Raises Conflict ETAG_MISMATCH, WrongState LEASE_ENDED or CHANGE_PENDING, Invalid
    TERMS_NOT_MOVABLE.
    """
    lease = record.lease
    check_etag(record, wanted.etag)
    if lease.state in ENDED or lease.state is LeaseState.CANCELLING:
        raise WrongState(
            "LEASE_ENDED",
            f"leases/{lease.id} is {lease.state.value}; it can no longer change.",
            lease=lease.id,
            state=lease.state.value,
        )
    if wanted.labels is not None and wanted.labels != lease.spec.labels:
        lease = replace(lease, spec=replace(lease.spec, labels=dict(wanted.labels)))
    _check_hold(lease, wanted.terms)
    if lease.state in WAITING:
        lease = _applied(lease, wanted)
        return record if lease == record.lease else touched(record, lease, now)
    asked = _asked(lease, wanted, change_id, now)
    if asked is None:
        return record if lease == record.lease else touched(record, lease, now)
    if record.change is not None and record.change.undecided:
        raise WrongState(
            "CHANGE_PENDING",
            f"leases/{lease.id} has a change that its leader has not decided; wait for it.",
            lease=lease.id,
            change_id=record.change.change_id,
        )
    return replace(touched(record, lease, now), change=asked)


def _check_hold(lease: Lease, terms: Terms | None) -> None:
    """Raise Invalid HOLD_TOO_LONG when a lease that is not confirmed might start too early."""
    if lease.hold_expires is None or terms is None:
        return
    earliest = terms.start if isinstance(terms, Advance) else None
    if isinstance(terms, Deadline):
        earliest = terms.earliest_start
    if earliest is None or earliest < lease.hold_expires:
        text = "lets it start before its hold is over; confirm it first"
        raise Invalid([Violation("lease.terms", "HOLD_TOO_LONG", text)])


def _applied(lease: Lease, wanted: WantedChange) -> Lease:
    """Return a waiting lease with the new values, which take effect at once."""
    spec = lease.spec
    changed = replace(
        spec,
        duration_ms=wanted.duration_ms or spec.duration_ms,
        terms=wanted.terms or spec.terms,
        node_count=wanted.node_count or spec.node_count,
        priority=spec.priority if wanted.priority is None else wanted.priority,
    )
    return replace(lease, spec=changed, remaining_ms=_remaining(lease, changed.duration_ms))


def _remaining(lease: Lease, duration_ms: Millis) -> Millis:
    """Return what is left to run when the duration changes: what was run stays run."""
    return max(1, lease.remaining_ms + duration_ms - lease.spec.duration_ms)


def _asked(lease: Lease, wanted: WantedChange, change_id: str, now: Millis) -> PendingChange | None:
    """Return what the leader must decide, None when all wanted values are the present ones."""
    spec = lease.spec
    start = _moved_start(spec, wanted.terms)
    asked = PendingChange(
        change_id,
        now,
        duration_ms=_if_other(wanted.duration_ms, spec.duration_ms),
        start=start,
        node_count=_if_other(wanted.node_count, spec.node_count) or 0,
        priority=_if_other(wanted.priority, spec.priority),
    )
    return None if asked == PendingChange(change_id, now) else asked


def _if_other(wanted: int | None, present: int) -> int | None:
    return None if wanted == present else wanted


def _moved_start(spec: LeaseSpec, terms: Terms | None) -> Millis | None:
    if terms is None or terms == spec.terms:
        return None
    if isinstance(terms, Advance) and isinstance(spec.terms, Advance):
        return terms.start
    raise Invalid(
        [
            Violation(
                "lease.terms",
                "TERMS_NOT_MOVABLE",
                "a lease that holds capacity keeps its kind of terms; only the start of an "
                "advance lease can be moved",
            )
        ]
    )


def granted(lease: Lease, change: PendingChange) -> Lease:
    """Return the lease with the terms of a granted change taken over."""
    spec = lease.spec
    terms = spec.terms
    if change.start is not None and isinstance(terms, Advance):
        terms = Advance(change.start)
    duration_ms = spec.duration_ms if change.duration_ms is None else change.duration_ms
    return replace(
        lease,
        spec=replace(
            spec,
            terms=terms,
            duration_ms=duration_ms,
            node_count=change.node_count or spec.node_count,
            priority=spec.priority if change.priority is None else change.priority,
        ),
        remaining_ms=_remaining(lease, duration_ms),
    )


def dropped_at_end(change: PendingChange | None) -> PendingChange | None:
    """Return the change as it is once the lease has ended: an undecided one is refused."""
    if change is None or not change.undecided:
        return change
    return replace(
        change,
        verdict=ChangeVerdict.REFUSED,
        reason="LEASE_ENDED",
        message="The lease ended before the change was decided.",
    )


def confirm(record: LeaseRecord, now: Millis) -> LeaseRecord:
    """Return the record once its owner takes what is held; the same one when nothing is.

    Raises WrongState HOLD_EXPIRED, LEASE_ENDED, LEASE_NOT_BOOKED.
    """
    lease = record.lease
    if lease.hold_expires is None:
        return record
    facts = {"lease": lease.id, "state": lease.state.value}
    over = lease.state in ENDED or lease.state is LeaseState.CANCELLING
    if lease.reason == "HOLD_EXPIRED" or (not over and lease.hold_expires <= now):
        raise WrongState("HOLD_EXPIRED", f"leases/{lease.id} was not confirmed in time.", **facts)
    if over:
        raise WrongState("LEASE_ENDED", f"leases/{lease.id} is {lease.state.value}.", **facts)
    if lease.state in WAITING:
        text = f"leases/{lease.id} is {lease.state.value}; wait until it is booked."
        raise WrongState("LEASE_NOT_BOOKED", text, **facts)
    text = "Its owner confirmed it."
    entry = HistoryEntry(
        now, lease.state, "CONFIRMED", text, lease.attempt, f"confirm.{lease.id}.{lease.version}"
    )
    confirmed = replace(lease, hold_expires=None, history=bounded((*lease.history, entry)))
    return touched(record, confirmed, now)


def cancel(record: LeaseRecord, etag: str, message: str, now: Millis) -> LeaseRecord:
    """Return the record after its owner gave it up; the same one when that changes nothing.

    Raises Conflict ETAG_MISMATCH.
    """
    lease = record.lease
    if lease.state in ENDED or lease.state is LeaseState.CANCELLING:
        return record
    check_etag(record, etag)
    waits = lease.state in WAITING
    after = LeaseState.CANCELLED if waits else LeaseState.CANCELLING
    transition_id = f"cancel.{lease.id}.{lease.version}"
    entry = HistoryEntry(now, after, "CANCELLED_BY_OWNER", message, lease.attempt, transition_id)
    changed = replace(
        lease,
        state=after,
        reason="CANCELLED_BY_OWNER",
        message=message,
        ended=now if waits else None,
        predicted_start=None if waits else lease.predicted_start,
        history=bounded((*lease.history, entry)),
    )
    return replace(touched(record, changed, now), change=dropped_at_end(record.change))


HISTORY_MAX = 100


def bounded(history: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return the newest entries, at most `HISTORY_MAX`."""
    return history[-HISTORY_MAX:]
