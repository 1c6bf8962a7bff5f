"""Compares one machine, command, start, history or booked node with the expected outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.conformance.autoscaler_case import Case, heartbeat, ms, only, settings

from tenure_core.autoscaling.command_log import after_command
from tenure_core.autoscaling.elastic_group import GroupDecision, GroupInputs, start
from tenure_core.autoscaling.future_node import (
    BookedNode,
    NodeState,
    NodeTimes,
    StartKind,
    decide_node,
)
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.heartbeats import Heartbeat, HeartbeatHistory, load_ppm, merged
from tenure_core.autoscaling.lifecycle import Verdict, judge
from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    ListedMachine,
    Listing,
    MachineRecord,
    MachineRole,
    MachineState,
    Probe,
)
from tenure_core.autoscaling.silence import heard, living_history


def judged(
    case: Case, config: ElasticGroupConfig, *, in_flight: int | None = None,
    second_source: bool = True, just_reported: bool = False,
) -> tuple[Verdict, HeartbeatHistory]:  # fmt: skip
    """Return our verdict on the one machine of a vm_decision case."""
    raw = case.input
    only(raw, {"now", "vm_type", "vm_state", "last_command", "elapsed_since_first_send",
               "heartbeats_buffered", "latest_heartbeat"})  # fmt: skip
    now_ms = ms(raw["now"])
    role = MachineRole.MASTER if raw["vm_type"] == "MASTER" else MachineRole.WORKER
    latest = raw["latest_heartbeat"]
    beats = [
        heartbeat(latest, place + 1, in_flight=in_flight)
        for place in range(raw["heartbeats_buffered"])
    ] if latest else []  # fmt: skip
    history = HeartbeatHistory(
        tuple(beats), beats[-1].received_at_ms if beats and just_reported else None
    )
    silent = bool(beats) and now_ms - beats[-1].received_at_ms > config.decision_interval_ms
    machine = ListedMachine(
        "vm", role, MachineState(raw["vm_state"]),
        probe=Probe.DEAD if silent and second_source else Probe.UNKNOWN,
    )  # fmt: skip
    last = CommandKind(raw["last_command"]) if raw["last_command"] else None
    record = MachineRecord(
        "vm", role, last, now_ms - ms(raw["elapsed_since_first_send"]), state=machine.state
    )
    history = living_history(record, history)
    found = heard(machine, record, history, now_ms=now_ms, config=config)
    verdict = judge(machine, record, history, found, now_ms=now_ms, deadlines=config.deadlines)
    return verdict, history


def vm_decision(case: Case) -> None:
    """Assert the command for one machine, and its load; a producer is none of ours."""
    only(case.expect, {"command", "load"})
    config = settings(case.config)
    if case.input["vm_type"] == "PRODUCER":
        return _producer(case, config)
    verdict, history = judged(case, config)
    expected = CommandKind(case.expect["command"]) if case.expect["command"] else None
    assert verdict.command is expected
    load = None
    enough = len(history.entries) >= config.band.samples
    if verdict.reason == "serving" and case.input["vm_type"] == "WORKER" and enough:
        assert history.latest is not None
        load = load_ppm(history.latest, limit_ppm=config.band.load_limit_ppm) / 1e6
    assert load == case.expect["load"]
    return None


def _producer(case: Case, config: ElasticGroupConfig) -> None:
    listing = Listing(
        (
            ListedMachine(
                "vm", MachineRole.WORKER, MachineState(case.input["vm_state"]), owned=False
            ),
        )
    )
    decision = start(GroupState(), GroupInputs(ms(case.input["now"]), listing), config)
    assert all(command.machine_id != "vm" for command in decision.commands)
    assert decision.explanation.foreign == ("vm",)


def heartbeat_merge(case: Case) -> None:
    """Assert buffer and latest after each tick."""
    for history, expected in zip(merged_ticks(case), case.expect["after_each_tick"], strict=True):
        only(expected, {"buffer", "latest"})
        assert [entry.sequence for entry in history.entries] == expected["buffer"]
        assert history.latest is not None and history.latest.sequence == expected["latest"]


def merged_ticks(case: Case) -> list[HeartbeatHistory]:
    """Return the history of the one known machine after each tick of a heartbeat case."""
    only(case.input, {"known_addresses", "prior_buffer", "ticks"})
    history_max = settings(case.config).history_max
    history = merged(
        HeartbeatHistory(), map(_beat, case.input["prior_buffer"]), history_max=history_max
    )
    known, after = case.input["known_addresses"], []
    for arrivals in case.input["ticks"]:
        mine = [sent for sender, sent in arrivals if sender.rsplit(":", 1)[0] in known]
        history = merged(history, map(_beat, mine), history_max=history_max)
        after.append(history)
    return after


def _beat(sent: int) -> Heartbeat:
    return Heartbeat(1, sent, ms(sent), ApplicationState.RUNNING)


def started(
    case: Case, *, stored: Mapping[str, MachineRecord] | None = None
) -> tuple[GroupDecision, ElasticGroupConfig]:
    """Return the first decision over the listing of a bootstrap case."""
    only(case.input, {"now", "vms"})
    config = settings(case.config)
    machines = tuple(
        ListedMachine(
            vm["id"],
            MachineRole.MASTER if vm["type"] == "MASTER" else MachineRole.WORKER,
            MachineState(vm["state"]),
            owned=vm["type"] in ("MASTER", "WORKER"),
        )
        for vm in case.input["vms"]
    )
    inputs = GroupInputs(ms(case.input["now"]), Listing(machines))
    return start(GroupState(records=dict(stored or {})), inputs, config), config


def bootstrap(case: Case) -> None:
    """Assert master, log, commands and waiting flag of a start without stored state.

    The ancestor's worker counter is not compared: it is zero here until a master runs, ours is
    derived from the listing in every tick (P04).
    """
    expect = case.expect
    only(expect, {"master", "commands", "waiting_for_master", "worker_counter", "last_commands"})
    decision, _ = started(case)
    found = [[c.kind.value, c.machine_id or c.role.value] for c in decision.commands]
    foreign = set(decision.explanation.foreign)
    assert found == [entry for entry in expect["commands"] if entry[1] not in foreign]
    logged = {
        name: (record.last.value if record.last else None, record.since_ms)
        for name, record in decision.state.records.items()
    }
    for place, intent in enumerate(decision.state.intents):
        logged[f"new{place + 1}"] = (CommandKind.VM_CREATE.value, intent.asked_at_ms)
    assert logged == {
        name: (entry["command"], ms(entry["at"]))
        for name, entry in expect["last_commands"].items()
        if name not in foreign
    }
    master = decision.state.master_id or ("new1" if decision.state.intents else None)
    assert (master, decision.state.waiting) == (expect["master"], expect["waiting_for_master"])


def command_log(case: Case) -> None:
    """Assert the log entry, the buffer, the run clock and the count after one command."""
    expect = case.expect
    only(expect, {"log_entry", "buffered_heartbeats", "run_clock_started_at", "worker_counter",
                  "still_listed"})  # fmt: skip
    _, after, history = logged_command(case)
    if after.tombstone:
        assert expect["log_entry"] is None
    else:
        assert after.last is not None
        assert {"command": after.last.value, "first_sent_at": after.since_ms // 1000} == expect[
            "log_entry"
        ]
        assert len(living_history(after, history).entries) == expect["buffered_heartbeats"]
    clock = after.running_since_ms
    assert (clock // 1000 if clock is not None else None) == expect["run_clock_started_at"]
    gone = after.tombstone and case.input["vm_type"] == "WORKER"
    assert case.input["worker_counter"] - gone == expect["worker_counter"]
    assert (not after.tombstone) == expect["still_listed"]


def logged_command(case: Case) -> tuple[MachineRecord, MachineRecord, HeartbeatHistory]:
    """Return the record before and after the command of a command_log case, and its buffer."""
    raw = case.input
    only(raw, {"now", "vm_type", "previous", "buffered_heartbeats", "run_clock_known",
               "worker_counter", "send"})  # fmt: skip
    now_ms = ms(raw["now"])
    role = MachineRole.MASTER if raw["vm_type"] == "MASTER" else MachineRole.WORKER
    previous = raw["previous"]
    last = CommandKind(previous["command"]) if previous["command"] else None
    before = MachineRecord(
        "vm", role, last, ms(previous["first_sent_at"]),
        running_since_ms=0 if raw["run_clock_known"] else None,
    )  # fmt: skip
    beats = tuple(
        replace(_beat(place + 1), received_at_ms=now_ms - 1000)
        for place in range(raw["buffered_heartbeats"])
    )
    after = after_command(before, CommandKind(raw["send"]), now_ms=now_ms)
    return before, after, HeartbeatHistory(beats)


def future_node(case: Case) -> None:
    """Assert action, lateness and reason of section 3's rule."""
    raw, config = case.input, case.config
    only(raw, {"state", "busy", "idle_for", "suspended_for", "starting_kind", "starting_for",
               "next_booking_in"})  # fmt: skip
    only(case.expect, {"action", "late", "reason"})
    only(config, {"boot_p95", "resume_p95", "suspend_p95", "guard", "idle_suspend_after",
                  "idle_terminate_after", "suspended_terminate_after",
                  "start_deadline_factor"})  # fmt: skip
    times = NodeTimes(
        boot_p95_ms=ms(config["boot_p95"]),
        resume_p95_ms=ms(config["resume_p95"]),
        suspend_p95_ms=ms(config["suspend_p95"]),
        guard_ms=ms(config["guard"]),
        idle_suspend_after_ms=ms(config["idle_suspend_after"]),
        idle_terminate_after_ms=ms(config["idle_terminate_after"]),
        suspended_terminate_after_ms=ms(config["suspended_terminate_after"]),
        start_deadline_factor=config["start_deadline_factor"],
    )
    booking = raw["next_booking_in"]
    since = raw.get("idle_for", raw.get("suspended_for", raw.get("starting_for", 0)))
    node = BookedNode(
        NodeState(raw["state"]),
        busy=raw.get("busy", False),
        since_ms=ms(since),
        starting=StartKind(raw["starting_kind"]) if "starting_kind" in raw else None,
        next_booking_in_ms=None if booking is None else ms(booking),
    )
    found = decide_node(node, times)
    assert {
        "action": found.action.value, "late": found.late, "reason": found.reason
    } == case.expect  # fmt: skip
