"""The life cycle table: total, without dead ends, and gentle where the ancestor was not."""

from __future__ import annotations

from itertools import product

import pytest

from tenure_core.autoscaling.group_config import Deadlines
from tenure_core.autoscaling.heartbeats import HeartbeatHistory
from tenure_core.autoscaling.lifecycle import LASTS, MASTER_TABLE, TABLE, Rule, judge
from tenure_core.autoscaling.machines import (
    CommandKind,
    ListedMachine,
    MachineRecord,
    MachineRole,
    MachineState,
)
from tenure_core.autoscaling.silence import Heard

CELLS = list(product(MachineState, Heard, LASTS))
NOW = 10_000_000
DEADLINES = Deadlines()

RESTS = {"asleep", "serving", "adopted_parked", "suspect", "parked_but_speaking"}
"""What may last: sleep and service for good, doubt until silence or speech ends it."""


def verdict(
    state: MachineState, heard: Heard, last: CommandKind | None, *, elapsed_ms: int = 0,
    attempt: int = 1, deadlines: Deadlines = DEADLINES, role: MachineRole = MachineRole.WORKER,
):  # fmt: skip
    """Judge one machine that got its last command `elapsed_ms` ago."""
    record = MachineRecord("vm", role, last, NOW - elapsed_ms, attempt=attempt)
    machine = ListedMachine("vm", role, state)
    return judge(machine, record, HeartbeatHistory(), heard, now_ms=NOW, deadlines=deadlines)


@pytest.mark.parametrize("table", [TABLE, MASTER_TABLE], ids=["worker", "master"])
def test_the_table_answers_every_combination(table: dict[object, Rule]) -> None:
    """A combination without an answer would stop the controller."""
    assert set(table) == set(CELLS)


def test_p09_no_state_reached_by_a_command_lasts_for_ever() -> None:
    """Every cell acts, rests by intent, or has a deadline whose expiry acts."""
    for cell in CELLS:
        rule = TABLE[cell]
        acts = rule.command is not None or (rule.deadline is not None and rule.late is not None)
        assert acts or rule.reason in RESTS, (cell, rule)


def test_p09_a_retry_is_followed_by_a_replacement() -> None:
    """When no attempt is left, the machine is replaced rather than tried for ever."""
    state, heard, last = MachineState.SUSPENDED, Heard.NEVER, CommandKind.VM_RESUME
    late = DEADLINES.startup_ms + 1

    first = verdict(state, heard, last, elapsed_ms=late)
    second = verdict(state, heard, last, elapsed_ms=late, attempt=2)

    assert (first.command, first.new_attempt) == (CommandKind.VM_RESUME, True)
    assert second.command is CommandKind.VM_DELETE


@pytest.mark.parametrize("limit", ["startup_ms", "transition_ms", "shutdown_ms"])
def test_a_deadline_is_passed_only_when_exceeded(limit: str) -> None:
    """Equal is still in time, as the ancestor has it."""
    cell = {
        "startup_ms": (MachineState.PENDING, Heard.NEVER, CommandKind.VM_CREATE),
        "transition_ms": (MachineState.ACTIVE, Heard.READY, CommandKind.APP_INIT),
        "shutdown_ms": (MachineState.ACTIVE, Heard.RUNNING, CommandKind.APP_SHUTDOWN),
    }[limit]
    at = getattr(DEADLINES, limit)

    assert verdict(*cell, elapsed_ms=at).command is not CommandKind.VM_DELETE
    assert verdict(*cell, elapsed_ms=at + 1).command is CommandKind.VM_DELETE


def test_p13_power_is_cut_only_once_work_has_ended() -> None:
    """READY says unsubscribed, not done: only an empty agent is suspended in time."""
    drained = verdict(MachineState.ACTIVE, Heard.READY, CommandKind.APP_SHUTDOWN)
    working = verdict(MachineState.ACTIVE, Heard.BUSY, CommandKind.APP_SHUTDOWN)

    assert drained.command is CommandKind.VM_SUSPEND
    assert working.command is CommandKind.APP_SHUTDOWN


@pytest.mark.parametrize("heard", [Heard.BUSY, Heard.RUNNING, Heard.SHUTTING_DOWN])
def test_p13_force_needs_its_rule_and_hands_the_work_back(heard: Heard) -> None:
    """Past the deadline the force rule cuts power and re-queues; without it the drain goes on."""
    late = DEADLINES.shutdown_ms + 1
    cell = (MachineState.ACTIVE, heard, CommandKind.APP_SHUTDOWN)

    forced = verdict(*cell, elapsed_ms=late)
    gentle = verdict(*cell, elapsed_ms=late, deadlines=Deadlines(force_removal=False))

    assert forced.command in (CommandKind.VM_SUSPEND, CommandKind.VM_DELETE)
    assert forced.requeue
    assert gentle.command is CommandKind.APP_SHUTDOWN


def test_p24_no_fresh_report_alone_deletes_a_machine_in_time() -> None:
    """An unexpected pair is reconciled: whatever an agent says, it is not deleted for saying it."""
    speaking = [h for h in Heard if h not in (Heard.NEVER, Heard.SUSPECT, Heard.DEAD)]
    for heard, last in product(speaking, LASTS):
        if last is not CommandKind.VM_DELETE:
            found = verdict(MachineState.ACTIVE, heard, last)
            assert found.command is not CommandKind.VM_DELETE, (heard, last)


def test_a_master_is_never_drained_or_suspended_by_its_own_state() -> None:
    """A master that stops has its transition time to come back; then it counts as lost."""
    for heard, last in product(Heard, LASTS):
        found = verdict(MachineState.ACTIVE, heard, last, role=MachineRole.MASTER)
        assert found.command is not CommandKind.APP_SHUTDOWN
        assert found.command is not CommandKind.VM_SUSPEND or last is CommandKind.VM_SUSPEND


def test_p19_a_tombstone_gets_nothing_but_its_deletion() -> None:
    """A deleted machine that lingers is not initialised, drained or judged by its state."""
    for state, heard in product(MachineState, Heard):
        early = verdict(state, heard, CommandKind.VM_DELETE)
        late = verdict(state, heard, CommandKind.VM_DELETE, elapsed_ms=DEADLINES.delete_ms + 1)
        assert (early.command, late.command) == (None, CommandKind.VM_DELETE)
        assert late.new_attempt


def test_a_word_that_no_provider_state_has_is_unknown() -> None:
    """Every other provider word becomes UNKNOWN rather than an error."""
    assert MachineState.of_word("suspended") is MachineState.SUSPENDED
    assert MachineState.of_word("CLONING") is MachineState.UNKNOWN
