"""The durable state of an elastic group, and how a complete listing changes it.

Counts are never stored: every tick derives them from the listing and the open intents (P04). What
has left the listing is forgotten in the same tick (P03), what carries no mark of the group is
reported and left alone (P01, P02).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tenure_core.autoscaling.command_log import after_listing
from tenure_core.autoscaling.damping import DampingState
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.machines import (
    CommandKind,
    CreateIntent,
    ListedMachine,
    Listing,
    MachineRecord,
    MachineRole,
)
from tenure_core.autoscaling.provider_errors import (
    CLEAN,
    Backoff,
    ProviderErrorClass,
    after_failure,
)
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class GroupState:
    """Everything that a group must remember.

    `waiting` says that workers rest until the master runs. `master_epoch` grows with every new
    master; only the machine that holds it is ever initialised. `token_count` numbers creations,
    so that no token is used for two attempts (P17).
    """

    master_id: str | None = None
    master_epoch: int = 0
    waiting: bool = True
    records: Mapping[str, MachineRecord] = field(default_factory=dict)
    intents: tuple[CreateIntent, ...] = ()
    token_count: int = 0
    damping: DampingState = field(default_factory=DampingState)
    backoff: Backoff = CLEAN
    doubted_since_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The state after a listing, with what the listing revealed."""

    state: GroupState
    owned: tuple[ListedMachine, ...]
    foreign: tuple[str, ...]
    adopted: tuple[str, ...]
    forgotten: tuple[str, ...]
    overdue: tuple[CreateIntent, ...]


def absorbed(
    state: GroupState, listing: Listing, *, now_ms: Millis, config: ElasticGroupConfig
) -> Absorbed:
    """Return the state brought up to a complete listing.

    A machine whose token is an open intent becomes a record of that creation; another owned
    machine without a record is adopted with no last command at `now_ms`. An intent that no
    complete listing has shown for `create_seen_ms` is overdue (look it up by token), and given up
    after twice that time.
    """
    assert listing.complete, "an incomplete listing is no ground for any change"
    intents = {intent.token: intent for intent in state.intents}
    records: dict[str, MachineRecord] = {}
    adopted: list[str] = []
    owned = tuple(machine for machine in listing.machines if machine.owned)
    for machine in owned:
        known = state.records.get(machine.machine_id)
        if known is None:
            intent = intents.pop(machine.token, None) if machine.token else None
            known = _first_record(machine, intent, now_ms=now_ms)
            if intent is None:
                adopted.append(machine.machine_id)
        records[machine.machine_id] = after_listing(known, machine.state, now_ms=now_ms)
    seen_ms = config.deadlines.create_seen_ms
    still_open = tuple(i for i in intents.values() if now_ms - i.asked_at_ms <= 2 * seen_ms)
    overdue = tuple(intent for intent in still_open if now_ms - intent.asked_at_ms > seen_ms)
    forgotten = tuple(sorted(set(state.records) - set(records)))
    master_id = state.master_id if state.master_id in records else None
    changed = replace(
        state,
        records=records,
        intents=still_open,
        master_id=master_id or _master_of_epoch(records, state.master_epoch),
    )
    foreign = tuple(machine.machine_id for machine in listing.machines if not machine.owned)
    return Absorbed(changed, owned, foreign, tuple(adopted), forgotten, overdue)


def _first_record(
    machine: ListedMachine, intent: CreateIntent | None, *, now_ms: Millis
) -> MachineRecord:
    return MachineRecord(
        machine.machine_id,
        machine.role,
        last=CommandKind.VM_CREATE if intent else None,
        since_ms=intent.asked_at_ms if intent else now_ms,
        running_since_ms=intent.asked_at_ms if intent else now_ms,
        master_epoch=intent.master_epoch if intent else 0,
    )


def _master_of_epoch(records: Mapping[str, MachineRecord], epoch: int) -> str | None:
    """Return the master created for the present epoch, the last listed of several."""
    found = [
        record.machine_id
        for record in records.values()
        if record.role is MachineRole.MASTER
        and not record.tombstone
        and record.master_epoch == epoch
    ]
    return found[-1] if found else None


def bootstrapped(
    state: GroupState, listing: Listing, *, now_ms: Millis, config: ElasticGroupConfig
) -> GroupState:
    """Return the state from which a controller that has just started goes on.

    Stored records keep their commands, timers and reasons (P22); what is new is adopted. Of
    several masters without a stored choice the one of the highest epoch is taken, the last listed
    of equals. Workers rest until the master is seen to run.
    """
    now = absorbed(state, listing, now_ms=now_ms, config=config).state
    if now.master_id is not None:
        return replace(now, waiting=True)
    masters = [
        record
        for record in now.records.values()
        if record.role is MachineRole.MASTER and not record.tombstone
    ]
    if not masters:
        return replace(now, waiting=True)
    epoch = max(record.master_epoch for record in masters)
    chosen = [record for record in masters if record.master_epoch == epoch][-1]
    return replace(
        now, waiting=True, master_id=chosen.machine_id, master_epoch=max(now.master_epoch, epoch)
    )


def after_create_refused(
    state: GroupState, token: str, cause: ProviderErrorClass, *, now_ms: Millis
) -> GroupState:
    """Return the state once the provider has refused the creation `token`.

    The intent is closed and creations rest for the class's back-off; an UNCLEAR answer keeps the
    intent open, so that a look-up decides (P17, P18).
    """
    backoff = after_failure(state.backoff, cause, now_ms=now_ms)
    if cause is ProviderErrorClass.UNCLEAR:
        return replace(state, backoff=backoff)
    intents = tuple(intent for intent in state.intents if intent.token != token)
    return replace(state, backoff=backoff, intents=intents)
