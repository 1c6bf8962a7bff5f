"""An elastic group's records as the core's rule sees them, and its commands as records. Pure.

A machine is known to the rule by its token, which no other ever has; agents and their names come
and go. What is to be done follows from the rule's stored state alone, never from what was said
last: whoever leads next goes on from what is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from tenure_autoscaler.fleet_view import FleetLook
from tenure_autoscaler.providers.port import Capabilities
from tenure_autoscaler.records import FleetBook, MachineRecord, free_name, ordered
from tenure_autoscaler.values import (
    Booking,
    Group,
    MachineState,
    SeenAgent,
    SeenApplication,
)
from tenure_core.autoscaling.elastic_group import GroupDecision
from tenure_core.autoscaling.group_config import (
    Damping,
    Deadlines,
    DrainBand,
    ElasticGroupConfig,
)
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.heartbeats import Heartbeat, HeartbeatHistory, merged
from tenure_core.autoscaling.machines import (
    CommandKind,
    ListedMachine,
    Listing,
    MachineRole,
    Probe,
)
from tenure_core.autoscaling.machines import MachineState as Vm
from tenure_core.timebase import Millis

_PRESENT: Final = (MachineState.BOOTING, MachineState.RUNNING)
_PROBES: Final = {
    MachineState.RUNNING: Probe.ALIVE,
    MachineState.DRAINING: Probe.ALIVE,
    MachineState.LOST: Probe.DEAD,
}


def config_of(group: Group) -> ElasticGroupConfig:
    """Return a group's settings as the rule takes them."""
    policy = group.elastic
    assert policy is not None, "a group without a policy is not acted for"
    most = max(1, group.size_max)
    return ElasticGroupConfig(
        group.group,
        min_workers=min(most, max(1, group.size_min)),
        max_workers=most,
        decision_interval_ms=policy.interval_ms,
        heartbeat_interval_ms=max(1, policy.interval_ms // 5),
        deadlines=Deadlines(
            startup_ms=policy.startup_ms,
            transition_ms=policy.transition_ms,
            shutdown_ms=policy.shutdown_ms,
        ),
        band=DrainBand(policy.lower_ms, policy.upper_ms),
        damping=Damping(policy.in_window_ms, in_cooldown_ms=policy.in_cooldown_ms),
    )


def settled(state: GroupState, book: FleetBook) -> GroupState:
    """Return the state with what became of its orders: refused ones are closed, back-offs kept."""
    live = {record.token for record in book.records if record.live}
    return replace(
        state,
        intents=tuple(intent for intent in state.intents if intent.token in live),
        backoff=book.memory.backoff,
    )


def next_epoch(state: GroupState, listing: Listing) -> GroupState:
    """Return the state in which the next master's epoch is higher than that of one that is gone.

    For a group that awaits its master: one that serves is found to be lost by the rule itself.
    """
    listed = {machine.machine_id for machine in listing.machines}
    if state.master_id is None or state.master_id in listed:
        return state
    return replace(state, master_id=None, master_epoch=state.master_epoch + 1)


def listing_of(look: FleetLook, owner: str) -> Listing:
    """Return the provider's listing with what the neighbours know, in the order of creation.

    Machines of ours without a record are strays and not the rule's; so are those that came late.
    """
    records = _ruled(look)
    found: dict[str, ListedMachine] = {}
    foreign = []
    for machine in look.listed:
        record = records.get(machine.token)
        if machine.owner != owner:
            foreign.append(
                ListedMachine(machine.provider_id, MachineRole.WORKER, Vm.UNKNOWN, owned=False)
            )
        elif record is not None and record.provider_id in ("", machine.provider_id):
            found[record.token] = ListedMachine(
                record.token,
                MachineRole(record.role),
                Vm.SUSPENDED if machine.asleep else Vm.ACTIVE,
                token=record.token,
                probe=_probe(record, look.sights.get(record.machine)),
                next_booking_in_ms=_next_booking(look, record),
            )
    ours = sorted(found.values(), key=lambda each: (records[each.token].ordered_ms, each.token))
    return Listing((*ours, *foreign))


def _ruled(look: FleetLook) -> dict[str, MachineRecord]:
    return {
        record.token: record
        for record in look.reckoning.book.records
        if record.live and record.role and record.state is not MachineState.DRAINING
    }


def _probe(record: MachineRecord, sight: SeenAgent | None) -> Probe:
    if sight is None or sight.incarnation == record.before:
        return Probe.UNKNOWN
    return _PROBES.get(sight.state, Probe.UNKNOWN)


def _next_booking(look: FleetLook, record: MachineRecord) -> Millis | None:
    """Return the time to the next booking; zero for one that nobody could be asked about."""
    bookings: tuple[Booking, ...] | None = look.view.bookings
    sight = look.sights.get(record.machine)
    if bookings is None or (sight is not None and sight.running):
        return 0
    return min(
        (max(0, each.span.start - look.now_ms) for each in bookings if each.node == record.machine),
        default=None,
    )


def heard_histories(
    look: FleetLook,
    before: Mapping[str, HeartbeatHistory],
    applications: Iterable[SeenApplication],
    config: ElasticGroupConfig,
) -> dict[str, HeartbeatHistory]:
    """Return what was heard of each machine with the newest reports in it.

    A report counts for a machine if it comes from the incarnation that serves there now. The
    registry numbers reports as it receives them, so their number is their order.
    """
    said = {each.agent: each for each in applications}
    histories = {}
    for token, record in _ruled(look).items():
        known, seen = before.get(token, HeartbeatHistory()), said.get(record.machine)
        sight = look.sights.get(record.machine)
        here = sight is not None and sight.incarnation not in ("", record.before)
        if (
            seen is not None
            and here
            and sight is not None
            and seen.incarnation == sight.incarnation
        ):
            beat = _heartbeat(seen, look.now_ms)
            known = merged(known, [beat], history_max=config.history_max)
        histories[token] = known
    return histories


def _heartbeat(seen: SeenApplication, now_ms: Millis) -> Heartbeat:
    return Heartbeat(
        0, seen.sequence, now_ms - seen.age_ms, seen.state, threads=seen.threads,
        mean_job_ms=Fraction(seen.mean_job_ms), in_flight=seen.in_flight,
        queue_length=seen.queue_length, master_epoch=seen.master_epoch,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ElasticOrders:
    """What is to be written before anything is done: the state, new and ended records.

    `noted` are records of machines that fell asleep or woke, which nobody ordered just now.
    """

    state: GroupState
    written: tuple[MachineRecord, ...]
    noted: tuple[MachineRecord, ...]


def orders_of(look: FleetLook, decided: GroupDecision, can: Capabilities) -> ElasticOrders:
    """Return the records that carry a decision out.

    A creation for which there is no name or no room is closed again: the next run decides anew.
    """
    group, book, state = look.group, look.reckoning.book, decided.state
    assert group.elastic is not None, "a group without a policy is not acted for"
    by_token = {record.token: record for record in book.records}
    written: list[MachineRecord] = []
    for token, known in state.records.items():
        record = by_token.get(token)
        if record is not None and known.tombstone and record.state is not MachineState.REMOVING:
            going = replace(record, removed_ms=look.now_ms, retry_ms=0)
            written.append(going.turned(MachineState.REMOVING, look.now_ms, "ended"))
    before = book.memory.elastic
    for token in set(before.records if before else ()) - set(state.records):
        vanished = by_token.get(token)
        if vanished is not None and vanished.state in _PRESENT:
            # Forgotten at once (P03); should it be listed again, it is adopted.
            written.append(vanished.turned(MachineState.LOST, look.now_ms, "VANISHED"))
    asked = {intent.token for intent in state.intents}
    for record in book.records:
        if record.waits_for_provider and record.token not in {*asked, *state.records}:
            # Given up unanswered; should it have been made, it is removed when it is listed.
            gone = replace(record, removed_ms=look.now_ms, retry_ms=0)
            written.append(gone.turned(MachineState.REMOVING, look.now_ms, "given_up"))
    workers = sum(r.live and r.role != MachineRole.MASTER for r in book.records)
    room = group.size_max - workers - look.reckoning.besides
    closed: set[str] = set()
    for command in decided.commands:
        if command.kind is not CommandKind.VM_CREATE:
            continue
        name = free_name(group, can.names, book.taken, look.sights.keys())
        is_worker = command.role is MachineRole.WORKER
        if (
            name is None
            or (can.names is not None and name not in can.names)
            or (is_worker and room < 1)
        ):
            closed.add(command.token)
            continue
        room -= is_worker
        sight = look.sights.get(name)
        record = ordered(
            group, book, name, look.now_ms, before=sight.incarnation if sight else "",
            wait_ms=0, reason=command.reason,
        )  # fmt: skip
        record = replace(
            record, token=command.token, role=command.role.value,
            application=group.elastic.application,
        )  # fmt: skip
        written.append(record)
        book = book.with_records([record])
    intents = tuple(intent for intent in state.intents if intent.token not in closed)
    noted = _noted(look, {record.token for record in written})
    return ElasticOrders(replace(state, intents=intents), tuple(written), noted)


def _noted(look: FleetLook, written: Collection[str]) -> tuple[MachineRecord, ...]:
    asleep = {machine.token: machine.asleep for machine in look.listed}
    return tuple(
        replace(record, asleep=asleep[token], changed_ms=look.now_ms)
        for token, record in _ruled(look).items()
        if token not in written and asleep.get(token, record.asleep) is not record.asleep
    )


def to_suspend(state: GroupState, look: FleetLook) -> list[str]:
    """Return the provider's ids of the machines that shall sleep and do not."""
    return _differing(state, look, CommandKind.VM_SUSPEND, asleep=False)


def to_resume(state: GroupState, look: FleetLook) -> list[str]:
    """Return the provider's ids of the machines that shall wake and sleep."""
    return _differing(state, look, CommandKind.VM_RESUME, asleep=True)


def _differing(state: GroupState, look: FleetLook, last: CommandKind, *, asleep: bool) -> list[str]:
    records = _ruled(look)
    return [
        machine.provider_id
        for machine in look.listed
        if machine.asleep is asleep
        and machine.token in records
        and (known := state.records.get(machine.token)) is not None
        and known.last is last
    ]
