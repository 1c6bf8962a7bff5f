"""The life cycle of one machine: provider state x what is heard x last command -> next command.

One table decides for every combination; the first row that matches fills a cell. The rows follow
the ancestor's (autoscaler specification 1.6) except where a property corrects it: an unexpected
pair is adopted or drained, not deleted (P24); every state that a command leads to has a deadline
of its own, and its expiry means retry, then replacement (P09); power is cut only when work has
ended or by the force rule, which hands the work back first (P13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Final

from tenure_core.autoscaling.group_config import Deadlines
from tenure_core.autoscaling.heartbeats import HeartbeatHistory
from tenure_core.autoscaling.machines import LOGGED, ListedMachine, MachineRecord, MachineRole
from tenure_core.autoscaling.machines import CommandKind as Do
from tenure_core.autoscaling.machines import MachineState as Vm
from tenure_core.autoscaling.silence import Heard
from tenure_core.timebase import Millis


class Deadline(StrEnum):
    """Which setting limits a cell."""

    STARTUP = "startup_ms"
    TRANSITION = "transition_ms"
    SHUTDOWN = "shutdown_ms"
    SUSPEND = "suspend_ms"
    DELETE = "delete_ms"


class Since(StrEnum):
    """From when a deadline counts; each is at least the first sending of the last command."""

    COMMAND = "COMMAND"
    STATE = "STATE"
    REPORT = "REPORT"


@dataclass(frozen=True, slots=True)
class Rule:
    """One cell: what to do in time, and what to do late.

    `retry` is used while attempts are left, `late` afterwards. `forced` marks a late command that
    may interrupt work and needs the force rule. `requeue` hands the machine's work back to the
    queue before the command cuts its power. `probe` asks the second source.
    """

    reason: str
    command: Do | None = None
    deadline: Deadline | None = None
    late: Do | None = None
    retry: Do | None = None
    since: Since = Since.COMMAND
    forced: bool = False
    requeue: bool = False
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the table says for one machine, and why."""

    machine_id: str
    command: Do | None
    reason: str
    heard: Heard
    late: bool = False
    new_attempt: bool = False
    requeue: bool = False
    probe: bool = False


Last = Do | None
Row = tuple[Iterable[Vm], Iterable[Heard], Iterable[Last], Rule]

_ALL_VM: Final = tuple(Vm)
_ALL_HEARD: Final = tuple(Heard)
LASTS: Final[tuple[Last, ...]] = (None, *sorted(LOGGED))
_PARKED: Final = (Vm.HOLD, Vm.STOPPED, Vm.UNKNOWN)
_SPEAKING: Final = (
    Heard.INIT, Heard.READY, Heard.BUSY, Heard.RUNNING, Heard.SHUTTING_DOWN, Heard.ERROR,
)  # fmt: skip
_IDLE: Final = (Heard.READY, Heard.BUSY)
_ARRIVED: Final = (None, Do.VM_CREATE, Do.VM_RESUME)

_STARTING: Final = Rule("starting", None, Deadline.STARTUP, late=Do.VM_DELETE)
_INITIALISING: Final = Rule("initialising", Do.APP_INIT, Deadline.TRANSITION, late=Do.VM_DELETE)
_DRAINING: Final = Rule(
    "draining", Do.APP_SHUTDOWN, Deadline.SHUTDOWN, late=Do.VM_DELETE, forced=True, requeue=True
)

_ROWS: Final[tuple[Row, ...]] = (
    # A deleted machine that is still listed waits as a tombstone; the deletion is repeated.
    (_ALL_VM, _ALL_HEARD, [Do.VM_DELETE],
     Rule("delete_pending", None, Deadline.DELETE, late=Do.VM_DELETE)),
    ([Vm.FAILED], _ALL_HEARD, LASTS, Rule("failed_at_provider", Do.VM_DELETE, requeue=True)),
    ([Vm.DONE], _ALL_HEARD, LASTS, Rule("gone_at_provider", Do.VM_DELETE)),
    ([Vm.INIT, Vm.PENDING], _ALL_HEARD, LASTS, _STARTING),
    ([Vm.SUSPENDED], _ALL_HEARD, [None, Do.VM_SUSPEND], Rule("asleep")),
    ([Vm.SUSPENDED], _ALL_HEARD, [Do.VM_RESUME],
     Rule("resuming", None, Deadline.STARTUP, late=Do.VM_DELETE, retry=Do.VM_RESUME)),
    ([Vm.SUSPENDED], _ALL_HEARD, [Do.APP_SHUTDOWN],
     Rule("suspended_while_draining", Do.VM_SUSPEND)),
    ([Vm.SUSPENDED], _ALL_HEARD, LASTS,
     Rule("suspended_by_others", None, Deadline.STARTUP, late=Do.VM_RESUME, since=Since.STATE)),
    (_PARKED, _ALL_HEARD, [None], Rule("adopted_parked")),
    # Provider and agent disagree: one of the two says that the machine lives, so it stays.
    (_PARKED, _SPEAKING, LASTS, Rule("parked_but_speaking", probe=True)),
    (_PARKED, _ALL_HEARD, LASTS,
     Rule("parked", None, Deadline.STARTUP, late=Do.VM_DELETE, since=Since.STATE)),
    # From here on the provider says ACTIVE.
    ([Vm.ACTIVE], _SPEAKING, [Do.VM_SUSPEND],
     Rule("suspend_failed", Do.VM_SUSPEND, Deadline.SUSPEND,
          late=Do.VM_DELETE, retry=Do.VM_SUSPEND)),
    ([Vm.ACTIVE], _ALL_HEARD, [Do.VM_SUSPEND],
     Rule("suspending", None, Deadline.SUSPEND, late=Do.VM_DELETE, retry=Do.VM_SUSPEND)),
    ([Vm.ACTIVE], [Heard.NEVER], LASTS, _STARTING),
    ([Vm.ACTIVE], [Heard.DEAD], LASTS, Rule("silent", Do.VM_DELETE, requeue=True)),
    ([Vm.ACTIVE], [Heard.SUSPECT], LASTS, Rule("suspect", probe=True)),
    ([Vm.ACTIVE], [Heard.SHUTTING_DOWN], _ARRIVED, Rule("drain_adopted", Do.APP_SHUTDOWN)),
    ([Vm.ACTIVE], [Heard.RUNNING], _ARRIVED, Rule("adopted", Do.APP_INIT)),
    ([Vm.ACTIVE], _SPEAKING, _ARRIVED, Rule("arrived", Do.APP_INIT)),
    ([Vm.ACTIVE], [Heard.RUNNING], [Do.APP_INIT], Rule("serving")),
    ([Vm.ACTIVE], [Heard.SHUTTING_DOWN], [Do.APP_INIT], Rule("drain_adopted", Do.APP_SHUTDOWN)),
    ([Vm.ACTIVE], [Heard.ERROR], [Do.APP_INIT],
     Rule("recovering", Do.APP_INIT, Deadline.TRANSITION, late=Do.VM_DELETE, since=Since.REPORT)),
    ([Vm.ACTIVE], [Heard.INIT, *_IDLE], [Do.APP_INIT], _INITIALISING),
    ([Vm.ACTIVE], [Heard.READY], [Do.APP_SHUTDOWN], Rule("drained", Do.VM_SUSPEND)),
    ([Vm.ACTIVE], [Heard.BUSY], [Do.APP_SHUTDOWN],
     Rule("work_in_flight", Do.APP_SHUTDOWN, Deadline.SHUTDOWN, late=Do.VM_SUSPEND,
          forced=True, requeue=True)),
    ([Vm.ACTIVE], [Heard.ERROR], [Do.APP_SHUTDOWN], Rule("drain_failed", Do.APP_INIT)),
    ([Vm.ACTIVE], [Heard.INIT, Heard.RUNNING, Heard.SHUTTING_DOWN], [Do.APP_SHUTDOWN], _DRAINING),
)  # fmt: skip


def _filled(rows: Iterable[Row]) -> Mapping[tuple[Vm, Heard, Last], Rule]:
    table: dict[tuple[Vm, Heard, Last], Rule] = {}
    for states, heards, lasts, rule in rows:
        for cell in product(states, heards, lasts):
            table.setdefault(cell, rule)
    return table


TABLE: Final = _filled(_ROWS)
"""Every combination of provider state, what is heard, and last command; a test says it is total."""

_MASTER_ROWS: Final[tuple[Row, ...]] = (
    # A master is never drained: one that stops has its transition time to come back.
    (
        [Vm.ACTIVE],
        [Heard.SHUTTING_DOWN],
        [None, Do.VM_CREATE, Do.VM_RESUME, Do.APP_INIT, Do.APP_SHUTDOWN],
        Rule(
            "master_stopping",
            Do.APP_INIT,
            Deadline.TRANSITION,
            late=Do.VM_DELETE,
            since=Since.REPORT,
        ),
    ),
    ([Vm.ACTIVE], _SPEAKING, [Do.APP_SHUTDOWN], Rule("master_kept", Do.APP_INIT)),
)
MASTER_TABLE: Final = _filled((*_MASTER_ROWS, *_ROWS))
"""The same table with the rows that differ for a master."""


def judge(
    machine: ListedMachine,
    record: MachineRecord,
    history: HeartbeatHistory,
    heard: Heard,
    *,
    now_ms: Millis,
    deadlines: Deadlines,
) -> Verdict:
    """Return the next command for one owned machine, if any, with the reason for it."""
    table = MASTER_TABLE if record.role is MachineRole.MASTER else TABLE
    rule = table[machine.state, heard, record.last]
    if not _is_late(rule, record, history, now_ms=now_ms, deadlines=deadlines):
        return Verdict(
            machine.machine_id,
            rule.command,
            rule.reason,
            heard,
            requeue=rule.requeue and rule.deadline is None,
            probe=rule.probe,
        )
    if rule.retry is not None and record.attempt < deadlines.attempts_max:
        return Verdict(
            machine.machine_id, rule.retry, f"{rule.reason}_retry", heard, late=True,
            new_attempt=True,
        )  # fmt: skip
    if rule.forced and not deadlines.force_removal:
        return Verdict(
            machine.machine_id, rule.command, f"{rule.reason}_force_not_allowed", heard, late=True
        )
    return Verdict(
        machine.machine_id, rule.late, f"{rule.reason}_late", heard, late=True,
        new_attempt=rule.late is record.last, requeue=rule.requeue,
    )  # fmt: skip


def _is_late(
    rule: Rule,
    record: MachineRecord,
    history: HeartbeatHistory,
    *,
    now_ms: Millis,
    deadlines: Deadlines,
) -> bool:
    if rule.deadline is None:
        return False
    since = record.since_ms
    if rule.since is Since.STATE and record.state_since_ms is not None:
        since = max(since, record.state_since_ms)
    if rule.since is Since.REPORT and history.reported_since_ms is not None:
        since = max(since, history.reported_since_ms)
    limit: Millis = getattr(deadlines, rule.deadline.value)
    return now_ms - since > limit
