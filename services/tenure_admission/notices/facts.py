"""What of a lease's change its owner is told, and under which id.

Pure. An id is made of the fact, so that the same fact never makes a second notice: the lease's
version for a change (a version is written once), the end itself for a lease about to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tenure_admission.records import LeaseRecord
from tenure_core.leases.states import HOLDING, WAITING, LeaseState
from tenure_core.timebase import FOREVER, Millis

_ENDS = {
    LeaseState.FAILED: "FAILED",
    LeaseState.REJECTED: "FAILED",
    LeaseState.DONE: "ENDED",
    LeaseState.CANCELLED: "ENDED",
}


class Kind(Enum):
    """What a notice is about; see the contract."""

    BOOKED = "BOOKED"
    MOVED = "MOVED"
    DISPLACED = "DISPLACED"
    PREEMPTED = "PREEMPTED"
    ENDING = "ENDING"
    FAILED = "FAILED"
    ENDED = "ENDED"
    TEST = "TEST"


@dataclass(frozen=True, slots=True)
class Notice:
    """One fact to tell an owner; `facts` is what it says, as JSON can hold it."""

    id: str
    owner: str
    kind: Kind
    facts: Mapping[str, object]


def notice_of(before: LeaseRecord, after: LeaseRecord) -> Notice | None:
    """Return what the owner is told of a change, None for what concerns nobody."""
    kind = _kind_of(before, after)
    if kind is None:
        return None
    lease = after.lease
    facts: dict[str, object] = {
        "lease": f"leases/{lease.id}",
        "pool": lease.spec.pool,
        "state": lease.state.value,
        "reason": lease.reason,
        "message": lease.message,
        "time_ms": after.updated,
    }
    if after.charge is not None:
        facts["start_ms"] = after.charge.start
        if after.charge.end < FOREVER:
            facts["end_ms"] = after.charge.end
    if kind is Kind.MOVED and before.charge is not None:
        facts["start_before_ms"] = before.charge.start
    notice_id = f"{lease.id}.{lease.version}.{kind.value.lower()}"
    return Notice(notice_id, lease.spec.owner, kind, facts)


def _kind_of(before: LeaseRecord, after: LeaseRecord) -> Kind | None:
    was, now = before.lease.state, after.lease.state
    if was is now:
        moved = now is LeaseState.SCHEDULED and _start(before) != _start(after)
        return Kind.MOVED if moved else None
    if now in _ENDS:
        return Kind(_ENDS[now])
    if now is LeaseState.SCHEDULED:
        return Kind.BOOKED
    gives_way = now in (LeaseState.SUSPENDING, LeaseState.STOPPING)
    if gives_way and after.lease.reason == "PREEMPTED":
        return Kind.PREEMPTED
    # What was preempted was told so when it had to give way.
    if was in HOLDING and now in WAITING and before.lease.reason != "PREEMPTED":
        return Kind.DISPLACED
    return None


def _start(record: LeaseRecord) -> Millis | None:
    return record.charge.start if record.charge else None
