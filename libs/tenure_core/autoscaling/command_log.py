"""What sending a command does to a machine's record: timers, retries, the run clock.

A command of the same kind as the last keeps its id and first time (a re-send); another kind, or a
new attempt after a deadline, starts both anew. No command can fail for want of an entry.
"""

from __future__ import annotations

from dataclasses import replace

from tenure_core.autoscaling.machines import (
    LOGGED,
    CommandKind,
    MachineRecord,
    MachineState,
    SuspendReason,
)
from tenure_core.timebase import FOREVER, Millis


def after_command(
    record: MachineRecord,
    kind: CommandKind,
    *,
    now_ms: Millis,
    new_attempt: bool = False,
    reason: SuspendReason | None = None,
) -> MachineRecord:
    """Return the record once `kind` has been sent at `now_ms`.

    `new_attempt` restarts the timer of a repeated command. VM_SUSPEND stores `reason` (kept on a
    repetition), stops the run clock and voids the heartbeats heard so far; VM_RESUME starts the
    clock; VM_DELETE leaves a tombstone, deaf to late messages, until a listing confirms.
    """
    assert kind in LOGGED, f"{kind} changes nothing on a machine and is not logged"
    if kind is record.last and not new_attempt:
        return record
    repeated = kind is record.last
    changed = replace(
        record,
        last=kind,
        since_ms=now_ms,
        attempt=record.attempt + 1 if repeated else 1,
        sequence=record.sequence + 1,
    )
    if kind is CommandKind.VM_SUSPEND:
        kept = record.suspend_reason if repeated else reason
        return replace(
            changed,
            suspend_reason=kept or SuspendReason.DRAINED,
            running_since_ms=None,
            deaf_until_ms=now_ms,
        )
    if kind is CommandKind.VM_RESUME:
        return replace(changed, suspend_reason=None, running_since_ms=now_ms)
    if kind is CommandKind.VM_DELETE:
        return replace(changed, running_since_ms=None, deaf_until_ms=FOREVER)
    return changed


def after_listing(record: MachineRecord, state: MachineState, *, now_ms: Millis) -> MachineRecord:
    """Return the record with the provider's state and the instant it was first seen in it."""
    if state is record.state:
        return record
    since = now_ms if record.state is not None else None
    return replace(record, state=state, state_since_ms=since)


def run_time_ms(record: MachineRecord, *, now_ms: Millis) -> Millis:
    """Return how long the machine has run since it was created or resumed; zero when it sleeps."""
    if record.running_since_ms is None:
        return 0
    return max(0, now_ms - record.running_since_ms)
