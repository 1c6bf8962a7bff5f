"""What is written down about a fleet: each machine's order and life, and the fleet's memory.

A record is written before the provider is asked, under a token of its own; so whatever happens in
between, a complete listing and the records together say what there is. A machine's name is that
of its agent and of its node; names are used again, tokens never.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from tenure_autoscaler.values import Group, MachineState
from tenure_core.autoscaling.fleet import FleetState
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.lead_times import Measured
from tenure_core.autoscaling.provider_errors import CLEAN, Backoff
from tenure_core.autoscaling.reconciliation import WantedMachine
from tenure_core.errors import WrongState
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis

ENDED: Final = frozenset({MachineState.REMOVED, MachineState.LOST})


@dataclass(frozen=True, slots=True)
class GroupClaim:
    """What the acting leader of a group shows with each write."""

    group: str
    epoch: int

    @property
    def scope(self) -> str:
        """Return the scope of the epoch."""
        return f"group/{self.group}"


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """One life of a machine, from its order to its end.

    `before` is the incarnation of the agent that had the name earlier: it says nothing about this
    life. `retry_ms` is when the provider may be asked about it again. `idle_since_ms` is None
    """

    machine: str
    group: str
    pool: str
    generation: int
    token: str
    state: MachineState
    amounts: ResourceVector
    ordered_ms: Millis
    changed_ms: Millis
    launch_wait_ms: Millis = 0
    provider_id: str = ""
    before: str = ""
    incarnation: str = ""
    idle_since_ms: Millis | None = None
    silent_since_ms: Millis | None = None
    removed_ms: Millis | None = None
    retry_ms: Millis = 0
    reason: str = ""
    role: str = ""
    """In an elastic group: MASTER or WORKER."""
    application: str = ""
    asleep: bool = False

    @property
    def live(self) -> bool:
        """Say whether there may be a machine: it counts towards the cap and keeps its name."""
        return self.state not in ENDED

    @property
    def waits_for_provider(self) -> bool:
        """Say whether the provider has not said yet what it made."""
        return self.state is MachineState.REQUESTED

    def wanted(self) -> WantedMachine:
        """Return it as `reconcile` compares it with a listing."""
        return WantedMachine(self.token, self.ordered_ms, self.provider_id, self.removed_ms)

    def turned(self, state: MachineState, now_ms: Millis, reason: str = "") -> MachineRecord:
        """Return it in another state."""
        return replace(self, state=state, changed_ms=now_ms, reason=reason or self.reason)


@dataclass(frozen=True, slots=True)
class FleetMemory:
    """What a fleet must not forget: damping and rates, refusals, boot times, strangers' ages."""

    fleet: FleetState = field(default_factory=FleetState)
    backoff: Backoff = CLEAN
    boots: Measured = field(default_factory=Measured)
    first_seen: Mapping[str, Millis] = field(default_factory=dict)
    """When a machine with our mark but without a record was first listed, by provider id."""
    silent_since_ms: Millis | None = None
    offered: Mapping[str, Millis] = field(default_factory=dict)
    """Nodes that the slot table was told of before their machines, and from when."""
    elastic: GroupState | None = None
    """What an elastic group remembers; None while it never acted."""


@dataclass(frozen=True, slots=True)
class FleetBook:
    """All that is written down about one group's fleet."""

    records: tuple[MachineRecord, ...] = ()
    memory: FleetMemory = field(default_factory=FleetMemory)
    taken: frozenset[str] = frozenset()
    """Names of the live machines of every group."""

    def with_records(self, changed: Iterable[MachineRecord]) -> FleetBook:
        """Return the book with records written over."""
        by_name = {record.machine: record for record in self.records}
        by_name |= {record.machine: record for record in changed}
        taken = self.taken | {r.machine for r in by_name.values() if r.live}
        taken -= {r.machine for r in by_name.values() if not r.live}
        return FleetBook(tuple(by_name[name] for name in sorted(by_name)), self.memory, taken)


def ordered(
    group: Group, book: FleetBook, name: str, now_ms: Millis, *, before: str, wait_ms: Millis,
    reason: str,
) -> MachineRecord:  # fmt: skip
    """Return a new life of a machine, not yet asked for. Deterministic."""
    earlier = next((record for record in book.records if record.machine == name), None)
    generation = 1 if earlier is None else earlier.generation + 1
    return MachineRecord(
        name, group.group, group.pool, generation, f"{group.group}.{name}.{generation}",
        MachineState.REQUESTED, group.amounts, now_ms, now_ms, wait_ms,
        before=before or (earlier.incarnation if earlier else ""), reason=reason,
    )  # fmt: skip


def free_name(
    group: Group, names: Collection[str] | None, taken: Collection[str], known: Collection[str]
) -> str | None:
    """Return a name for a new machine, None when there is none.

    `names` are those that the provider has keys for, None for any. Names that nobody knows an
    agent of (`known`) come first, so that an old agent's last signs are not taken for the new one.
    """
    numbers = range(1, len(taken) + group.size_max + 2)
    all_names = list(names) if names is not None else [f"{group.group}-{n}" for n in numbers]
    free = [name for name in all_names if name not in taken]
    fresh = [name for name in free if name not in known]
    return next(iter(fresh or free), None)


def machine_taken(machine: str) -> WrongState:
    """Return the error of a name that another group's live machine has."""
    return WrongState("MACHINE_TAKEN", f"There is a machine {machine} already.", machine=machine)


def cap_reached(group: str, most: int) -> WrongState:
    """Return the error of an order beyond the group's largest size."""
    return WrongState("CAP_REACHED", f"Group {group} has at most {most} machines.", group=group)
