"""Compares with the ancestor's outcome, for the cases in which the ancestor is right."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import Any

from tests.conformance.autoscaler_case import Case, ms, only, settings
from tests.conformance.autoscaler_world import ScriptedWorld, Step

from tenure_core.autoscaling.drain_time import Direction
from tenure_core.autoscaling.machines import (
    CommandKind,
)

_DIRECTIONS = {Direction.IN: "down", Direction.HOLD: "hold", Direction.OUT: "up"}
_SCALE = {
    "evaluated", "active", "starting", "master_heartbeats", "loads", "avg_time", "avg_queue",
    "threads", "drain_time", "direction", "desired_time", "shutdown", "start", "why",
}  # fmt: skip


def close(found: Any, expected: float | None) -> bool:
    """Compare an exact number of ours with a float of the ancestor's."""
    if found is None or expected is None:
        return found is None and expected is None
    return isclose(float(found), expected, rel_tol=1e-9, abs_tol=1e-12)


def same_commands(step: Step, expected: list[list[str]]) -> None:
    """Assert the same commands: creations first, the rest as a set, refusals as an event."""
    foreign = {machine.machine_id for machine in step.listed if not machine.owned}
    wanted = [tuple(entry) for entry in expected if entry[1] not in foreign]
    found = list(step.commands)
    kinds = [kind for kind, _ in found]
    creations = kinds.count("VM_CREATE")
    assert kinds[:creations] == ["VM_CREATE"] * creations, found
    report = step.decision.explanation.scale
    if report is not None and report.refused_at_limit:
        found.append(("REFUSED_AT_LIMIT", "WORKER"))
    assert sorted(found) == sorted(wanted)


def tick(case: Case) -> None:
    """Assert the whole outcome of one tick."""
    config = settings(case.config)
    world = ScriptedWorld.of(case.input, config)
    step = world.tick(ms(case.input["now"]))
    expect = case.expect
    only(expect, {"commands", "commands_before_fault", "counts", "fault", "last_commands",
                  "master", "scale", "waiting_for_master", "wanted_running_workers",
                  "worker_counter"})  # fmt: skip
    if "fault" in expect:
        before = {tuple(entry) for entry in expect["commands_before_fault"]}
        assert before <= set(step.commands)
        return
    same_commands(step, expect["commands"])
    assert world.state.waiting == expect["waiting_for_master"]
    assert world.master() == expect["master"]
    foreign = {machine.machine_id for machine in step.listed if not machine.owned}
    logged = {name: kind for name, kind in expect["last_commands"].items() if name not in foreign}
    assert world.last_commands() == logged
    listed = sum(vm["type"] == "WORKER" for vm in case.input["vms"])
    if case.input["worker_counter"] == listed:
        assert world.worker_count() == expect["worker_counter"]
    if "scale" in expect:
        _scale(step, expect)


def _scale(step: Step, expect: Mapping[str, Any]) -> None:
    scale, report = expect["scale"], step.decision.explanation.scale
    only(scale, _SCALE)
    if scale.get("why") == "master_phase":
        assert report is None
        return
    assert report is not None
    assert (report.evaluated, report.active) == (scale["evaluated"], scale["active"])
    assert (report.reason == "WAITS_FOR_STARTS") == (scale["starting"] > 0)
    loads = step.decision.explanation.loads_ppm
    in_order = [loads[m.machine_id] / 1e6 for m in step.listed if m.machine_id in loads]
    assert in_order == scale["loads"]
    if report.measurement is not None:
        assert report.measurement.samples == scale["master_heartbeats"]
    if not scale["evaluated"]:
        return
    measured, advice = report.measurement, report.recommendation
    assert measured is not None and advice is not None
    assert close(measured.mean_job_ms / 1000, scale["avg_time"])  # type: ignore[operator]
    assert close(measured.mean_queue, scale["avg_queue"])
    assert measured.threads == scale["threads"]
    assert close(measured.drain_ms / 1000, scale["drain_time"])  # type: ignore[operator]
    assert _DIRECTIONS[advice.direction] == scale["direction"]
    desired = advice.desired_ms / 1000 if advice.desired_ms is not None else None
    assert close(desired, scale["desired_time"])
    assert max(0, report.active - advice.wanted) == scale["shutdown"]
    assert max(0, advice.wanted - report.active) == scale["start"]
    assert advice.wanted == expect["wanted_running_workers"]
    counts = expect["counts"]
    only(counts, {"shut_down", "resumed", "created", "refused_at_limit"})
    assert len(step.sent(CommandKind.APP_SHUTDOWN)) == counts["shut_down"]
    assert (report.resumed, report.created) == (counts["resumed"], counts["created"])
    assert report.refused_at_limit == counts["refused_at_limit"]


def sequence(case: Case) -> None:
    """Assert the commands of every tick, the drain times and the log at the end."""
    only(case.input, {"initial", "ticks"})
    only(case.expect, {"ticks", "last_commands"})
    world = ScriptedWorld.of(case.input["initial"], settings(case.config))
    assert len(case.input["ticks"]) == len(case.expect["ticks"])
    for raw, expected in zip(case.input["ticks"], case.expect["ticks"], strict=True):
        only(raw, {"now", "changes"})
        only(expected, {"now", "commands", "drain_time"})
        for change in raw["changes"]:
            world.change(change)
        step = world.tick(ms(raw["now"]))
        same_commands(step, expected["commands"])
        if "drain_time" in expected:
            report = step.decision.explanation.scale
            assert report is not None and report.measurement is not None
            assert close(report.measurement.drain_ms / 1000, expected["drain_time"])  # type: ignore[operator]
    assert world.last_commands() == case.expect["last_commands"]
