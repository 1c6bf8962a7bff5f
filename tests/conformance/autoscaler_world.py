"""A provider, its machines and their agents, as far as the cases and properties need them.

`ScriptedWorld` changes only as a case's script says, plus what the commands do at once. A world
that goes on by itself is in `autoscaler_live`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.autoscaler_case import heartbeat, ms, only

from tenure_core.autoscaling.elastic_group import GroupDecision, GroupInputs, decide
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.heartbeats import HeartbeatHistory, merged
from tenure_core.autoscaling.machines import (
    Command,
    CommandKind,
    ListedMachine,
    Listing,
    MachineRecord,
    MachineRole,
    MachineState,
    Probe,
    SuspendReason,
)

ANCESTRAL = (
    CommandKind.VM_CREATE, CommandKind.VM_SUSPEND, CommandKind.VM_RESUME,
    CommandKind.VM_DELETE, CommandKind.APP_INIT, CommandKind.APP_SHUTDOWN,
)  # fmt: skip
_INPUT = {
    "now", "master", "waiting_for_master", "worker_counter", "vms", "last_commands",
    "heartbeats", "has_start_time",
}  # fmt: skip


@dataclass
class Step:
    """One tick: what was listed, what was decided."""

    now_ms: int
    listed: tuple[ListedMachine, ...]
    histories: dict[str, HeartbeatHistory]
    before: GroupState
    decision: GroupDecision
    carried: tuple[Command, ...] = ()

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Return the ancestor's kinds of command as (kind, machine or role), in order."""
        return [
            (command.kind.value, command.machine_id or command.role.value)
            for command in self.decision.commands
            if command.kind in ANCESTRAL
        ]

    def sent(self, kind: CommandKind) -> list[str]:
        """Return the machines that were sent `kind`."""
        return [c.machine_id for c in self.decision.commands if c.kind is kind]


@dataclass
class ScriptedWorld:
    """The world of a case: creations appear as new1, new2 ..., deletions vanish at once."""

    config: ElasticGroupConfig
    machines: dict[str, ListedMachine]
    state: GroupState
    histories: dict[str, HeartbeatHistory] = field(default_factory=dict)
    in_flight: int | None = None
    work: Mapping[str, int] = field(default_factory=dict)
    second_source: bool = True
    deletes_linger: bool = False
    dropped: Callable[[Command], bool] = lambda _: False
    created: int = 0
    tokens: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, raw: Mapping[str, Any], config: ElasticGroupConfig, **options: Any
    ) -> ScriptedWorld:
        """Return the world of a case's whole-state input."""
        only(raw, _INPUT)
        world = cls(config, {}, GroupState(), **options)
        records = {}
        for vm in raw["vms"]:
            only(vm, {"id", "type", "state"})
            logged = raw["last_commands"].get(vm["id"])
            role = MachineRole.MASTER if vm["type"] == "MASTER" else MachineRole.WORKER
            owned = vm["type"] in ("MASTER", "WORKER") and logged is not None
            world.machines[vm["id"]] = ListedMachine(
                vm["id"], role, MachineState(vm["state"]), owned=owned
            )
            if owned:
                record = record_of(vm["id"], role, logged, vm["id"] in raw["has_start_time"])
                # While the ancestor waits for a master, whoever sleeps does so for the outage.
                if raw["waiting_for_master"] and record.suspend_reason:
                    record = replace(record, suspend_reason=SuspendReason.OUTAGE)
                records[vm["id"]] = record
        for machine_id, entries in raw["heartbeats"].items():
            for entry in entries:
                world.hear(machine_id, entry)
        world.state = GroupState(
            master_id=raw["master"],
            master_epoch=1,
            waiting=raw["waiting_for_master"],
            records=records,
        )
        return world

    def hear(self, machine_id: str, raw: Mapping[str, Any]) -> None:
        """Take in one heartbeat, in order of arrival."""
        history = self.histories.get(machine_id, HeartbeatHistory())
        latest = history.latest
        sequence = latest.sequence + 1 if latest else 1
        beat = heartbeat(
            raw,
            sequence,
            in_flight=self.work.get(machine_id, self.in_flight),
            master_epoch=max(1, self.state.master_epoch),
        )
        self.histories[machine_id] = merged(history, [beat], history_max=self.config.history_max)

    def change(self, raw: Mapping[str, Any]) -> None:
        """Apply one change of a script."""
        only(raw, {"heartbeat", "set_state"})
        if "heartbeat" in raw:
            self.hear(*raw["heartbeat"])
        if "set_state" in raw:
            machine_id, state = raw["set_state"]
            if machine_id in self.machines:
                self.machines[machine_id] = replace(
                    self.machines[machine_id], state=MachineState(state)
                )

    def tick(self, now_ms: int) -> Step:
        """Decide once, and let the commands have their immediate effect."""
        listed = tuple(self._probed(machine, now_ms) for machine in self.machines.values())
        inputs = GroupInputs(now_ms, Listing(listed), dict(self.histories))
        before = self.state
        decision = decide(before, inputs, self.config)
        self.state = decision.state
        carried = tuple(command for command in decision.commands if not self.dropped(command))
        for command in carried:
            self._carry_out(command)
        return Step(now_ms, listed, dict(self.histories), before, decision, carried)

    def _probed(self, machine: ListedMachine, now_ms: int) -> ListedMachine:
        """Let the second source confirm silence at once, unless the case is about that source."""
        latest = self.histories.get(machine.machine_id, HeartbeatHistory()).latest
        if latest is None or not self.second_source:
            return machine
        silent = now_ms - latest.received_at_ms > self.config.decision_interval_ms
        return replace(machine, probe=Probe.DEAD) if silent else machine

    def _carry_out(self, command: Command) -> None:
        if command.kind is CommandKind.VM_CREATE:
            self.created += 1
            name = f"new{self.created}"
            self.tokens[command.token] = name
            self.machines[name] = ListedMachine(
                name, command.role, MachineState.PENDING, token=command.token
            )
        if command.kind is CommandKind.VM_DELETE and not self.deletes_linger:
            self.machines.pop(command.machine_id, None)

    def last_commands(self) -> dict[str, str | None]:
        """Return the last command by machine; a creation counts before it is listed."""
        logged = {
            machine_id: record.last.value if record.last else None
            for machine_id, record in self.state.records.items()
            if not record.tombstone
        }
        for intent in self.state.intents:
            logged[self.tokens[intent.token]] = CommandKind.VM_CREATE.value
        return logged

    def master(self) -> str | None:
        """Return the present master, or the one on order."""
        if self.state.master_id is not None:
            return self.state.master_id
        orders = [i.token for i in self.state.intents if i.role is MachineRole.MASTER]
        return self.tokens[orders[0]] if orders else None

    def worker_count(self) -> int:
        """Return the workers that exist or are on order, as derived from records and intents."""
        listed = sum(
            record.role is MachineRole.WORKER and not record.tombstone
            for record in self.state.records.values()
        )
        return listed + sum(i.role is MachineRole.WORKER for i in self.state.intents)


def record_of(
    machine_id: str, role: MachineRole, logged: Mapping[str, Any], clock_known: bool
) -> MachineRecord:
    """Return the record of a machine from a case's command log."""
    only(logged, {"command", "first_sent_at"})
    last = CommandKind(logged["command"]) if logged["command"] else None
    since_ms = ms(logged["first_sent_at"])
    asleep = last is CommandKind.VM_SUSPEND
    return MachineRecord(
        machine_id,
        role,
        last,
        since_ms,
        suspend_reason=SuspendReason.DRAINED if asleep else None,
        running_since_ms=since_ms if clock_known else None,
        master_epoch=1 if role is MachineRole.MASTER else 0,
    )
