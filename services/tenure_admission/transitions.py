"""What a leader records of a lease: whether it is allowed, and the lease after it.

Pure: the store locks the leases, calls `record_all`, and writes what it returns in the same
transaction. The table of allowed changes is `tenure_core.leases.states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tenure_admission import phrases
from tenure_admission.budgets import Spent, refused_by
from tenure_admission.changes import bounded, dropped_at_end, granted
from tenure_admission.charges import Charge, Excess, charge_of
from tenure_admission.records import ChangeVerdict, LeaseRecord, Limit, PendingChange
from tenure_core.leases.lease import HistoryEntry, Lease, Placement
from tenure_core.leases.states import ENDED, HOLDING, WAITING, LeaseState, may_follow
from tenure_core.timebase import Interval, Millis

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition to record, as the leader asks for it; None keeps what is stored."""

    transition_id: str
    lease: str
    version: int
    state: LeaseState
    attempt: int
    reason: str = ""
    message: str = ""
    charge: Interval | None = None
    placements: tuple[Placement, ...] = ()
    predicted_start: Millis | None = None
    started: Millis | None = None
    ended: Millis | None = None
    remaining_ms: Millis | None = None
    exit_code: int | None = None
    preempted: bool = False
    failed: bool = False
    verdict: PendingChange | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one transition was not recorded."""

    reason: str
    message: str
    excess: Excess | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a call's transitions did: a refusal (or None) for each, and the leases that changed."""

    refusals: tuple[Refusal | None, ...]
    changed: Mapping[str, LeaseRecord]


@dataclass(slots=True)
class Book:
    """What the transaction has locked: leases, limits, and what these limits count."""

    records: dict[str, LeaseRecord]
    limits: Sequence[Limit] = ()
    charges: dict[str, Charge] = field(default_factory=dict)
    spent: Spent = field(default_factory=dict)


def record_all(book: Book, transitions: Iterable[Transition], now: Millis) -> Recorded:
    """Apply the transitions in order, each on what those before it left.

    A repeat (its id is in the lease's history) does nothing and is not refused.
    """
    refusals: list[Refusal | None] = []
    changed: dict[str, LeaseRecord] = {}
    for transition in transitions:
        record = book.records.get(transition.lease)
        if record is None:
            text = f"leases/{transition.lease} is not in this pool."
            refusals.append(Refusal("LEASE_NOT_FOUND", text))
            continue
        if _is_repeat(record.lease, transition):
            refusals.append(None)
            continue
        refusal = refused(record, transition)
        if refusal is None:
            after = recorded(record, transition, now)
            refusal = _over_limit(book, record, after, now)
            if refusal is None:
                book.records[transition.lease] = changed[transition.lease] = after
                _note_charge(book, after)
        refusals.append(refusal)
    return Recorded(tuple(refusals), changed)


def _is_repeat(lease: Lease, transition: Transition) -> bool:
    return any(entry.transition_id == transition.transition_id for entry in lease.history)


def refused(record: LeaseRecord, transition: Transition) -> Refusal | None:
    """Return why the transition may not be recorded, or None."""
    lease = record.lease
    if transition.version != lease.version:
        return Refusal(
            "VERSION_MISMATCH",
            f"leases/{lease.id} is at version {lease.version}, not {transition.version}.",
        )
    for check in _CHECKS:
        text = check(record, transition)
        if text:
            return Refusal("TRANSITION_NOT_ALLOWED", f"leases/{lease.id} {text}.")
    return None


def _state_fits(record: LeaseRecord, transition: Transition) -> str:
    before, after = record.lease.state, transition.state
    if before in ENDED:
        return f"ended as {before.value}"
    if before is not after and not may_follow(before, after):
        return f"is {before.value}; {after.value} may not follow"
    return ""


def _attempt_fits(record: LeaseRecord, transition: Transition) -> str:
    present, asked = record.lease.attempt, transition.attempt
    placed_anew = record.lease.state in WAITING and transition.state in HOLDING
    if placed_anew and asked != present + 1:
        return f"is placed anew: that is attempt {present + 1}, not {asked}"
    if asked == present or (asked == present + 1 and transition.state in HOLDING):
        return ""
    return f"is at attempt {present}; {asked} does not follow"


def _charge_fits(record: LeaseRecord, transition: Transition) -> str:
    holds = transition.state in HOLDING
    if holds and transition.charge is None and record.charge is None:
        return "would hold capacity that is not charged: give a charge_interval"
    if not holds and transition.charge is not None:
        return f"holds nothing when {transition.state.value}: it takes no charge_interval"
    return ""


def _verdict_fits(record: LeaseRecord, transition: Transition) -> str:
    verdict, change = transition.verdict, record.change
    if verdict is None:
        return ""
    if verdict.undecided:
        return "gets a change_verdict that decides nothing"
    if change is None or not change.undecided or change.change_id != verdict.change_id:
        return f"has no undecided change {verdict.change_id!r}"
    return ""


_CHECKS: tuple[Callable[[LeaseRecord, Transition], str], ...] = (
    _state_fits,
    _attempt_fits,
    _charge_fits,
    _verdict_fits,
)


def recorded(record: LeaseRecord, transition: Transition, now: Millis) -> LeaseRecord:
    """Return the record after an allowed transition."""
    lease, change = _with_verdict(record, transition.verdict)
    state = transition.state
    ends, holds, anew = state in ENDED, state in HOLDING, transition.attempt != lease.attempt
    entry = HistoryEntry(
        now, state, transition.reason, transition.message, transition.attempt,
        transition.transition_id,
    )  # fmt: skip
    # Spelt out rather than replaced field by field: this is the busiest function of all.
    after = Lease(
        id=lease.id,
        spec=lease.spec,
        state=state,
        created=lease.created,
        version=lease.version + 1,
        attempt=transition.attempt,
        reason=transition.reason,
        message=transition.message,
        predicted_start=_predicted(lease, transition),
        started=_given(transition.started, None if anew else lease.started),
        ended=_given(transition.ended, now) if ends else None,
        remaining_ms=_given(transition.remaining_ms, lease.remaining_ms),
        placements=transition.placements or (() if anew else lease.placements),
        exit_code=_given(transition.exit_code, None if anew else lease.exit_code),
        preemptions=lease.preemptions + (1 if transition.preempted else 0),
        failures=lease.failures + (1 if transition.failed else 0),
        history=bounded((*lease.history, entry)),
        hold_expires=lease.hold_expires,
    )
    return LeaseRecord(
        lease=after,
        updated=now,
        trace_parent=record.trace_parent,
        charge=(transition.charge or record.charge) if holds else None,
        change=dropped_at_end(change) if ends else change,
    )


def _given(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value


def _predicted(lease: Lease, transition: Transition) -> Millis | None:
    """Return the predicted start: an old one means nothing once the lease waits anew or ended."""
    if transition.predicted_start is not None:
        return transition.predicted_start
    return lease.predicted_start if transition.state in HOLDING else None


def _with_verdict(
    record: LeaseRecord, verdict: PendingChange | None
) -> tuple[Lease, PendingChange | None]:
    """Return lease and pending change once the leader's verdict is taken over."""
    if verdict is None or record.change is None:
        return record.lease, record.change
    asked = record.change
    decided = replace(
        asked,
        duration_ms=_given(verdict.duration_ms, asked.duration_ms),
        start=_given(verdict.start, asked.start),
        node_count=verdict.node_count or asked.node_count,
        priority=_given(verdict.priority, asked.priority),
        verdict=verdict.verdict,
        reason=verdict.reason,
        message=verdict.message,
        counter_offers=verdict.counter_offers,
    )
    if decided.verdict is ChangeVerdict.GRANTED:
        return granted(record.lease, decided), decided
    return record.lease, decided


def _over_limit(book: Book, before: LeaseRecord, after: LeaseRecord, now: Millis) -> Refusal | None:
    """Return why the charge after would exceed a limit.

    A charge that does not grow never does: lowering a limit below usage breaks nothing.
    """
    wanted = charge_of(after)
    if wanted is None or not book.limits or not _grows(charge_of(before), wanted):
        return None
    over = refused_by(wanted, list(book.charges.values()), book.limits, book.spent, now)
    return None if over is None else Refusal("QUOTA_EXCEEDED", phrases.of_excess(over), over)


def _grows(before: Charge | None, after: Charge) -> bool:
    return (
        before is None
        or not before.interval.covers(after.interval)
        or any(amount > before.amounts.get(kind, 0) for kind, amount in after.amounts.items())
    )


def _note_charge(book: Book, record: LeaseRecord) -> None:
    charge = charge_of(record)
    if charge is None:
        book.charges.pop(record.lease.id, None)
    else:
        book.charges[record.lease.id] = charge
