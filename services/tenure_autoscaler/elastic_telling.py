"""A decision about an elastic group in words, with what it was made from."""

from __future__ import annotations

from fractions import Fraction

from tenure_autoscaler.fleet_view import FleetLook
from tenure_autoscaler.values import Decision
from tenure_core.autoscaling.elastic_group import GroupDecision
from tenure_core.autoscaling.machines import LOGGED, MachineRole
from tenure_core.autoscaling.master_protocol import Phase
from tenure_core.autoscaling.worker_scaling import ScaleReport

_PHASES = {
    Phase.HELD: ("OBSERVER_IN_DOUBT", "Too much is silent or unknown at once; nothing is taken."),
    Phase.MISSING: ("MASTER_MISSING", "There is no master; one is on order."),
    Phase.LOST: ("MASTER_LOST", "The master is lost: workers sleep until a new one runs."),
    Phase.WAITING: ("MASTER_AWAITED", "Workers rest until the master runs."),
    Phase.RETURNED: ("MASTER_RUNS", "The master runs: what slept for its outage is resumed."),
}
_ENDING = (
    "ENDING",
    "The group may have no machines: workers end their work, the master goes last.",
)


def told(look: FleetLook, decided: GroupDecision, epoch: int, *, enacted: bool) -> Decision:
    """Return a decision in words."""
    why, report = decided.explanation, decided.explanation.scale
    present = sum(
        record.role is MachineRole.WORKER and not record.tombstone
        for record in decided.state.records.values()
    )
    current, target = present, present
    if look.group.size_max == 0:
        (rule, message), target = _ENDING, 0
    elif report is not None:
        current, target = report.active, report.active
        rule, message = _scaled(report)
        target += report.created + report.resumed + report.drains_cancelled - report.shut_down
    else:
        rule, message = _PHASES[why.phase]
    commands = [
        f"{c.kind.value}:{c.machine_id or c.token}:{c.reason}"
        for c in decided.commands
        if c.kind in LOGGED and not c.resent
    ]
    inputs = {
        "phase": why.phase.value,
        "reason": why.reason,
        "masterEpoch": str(decided.state.master_epoch),
        "machines": " ".join(
            f"{each.machine_id}:{each.state.value}:{each.heard.value}:{each.reason}"
            for each in why.machines
        )[:2_000],
        "commands": " ".join(commands)[:2_000],
        "foreign": str(look.reckoning.foreign),
        "strays": str(len(look.reckoning.strays)),
        "sizeMin": str(look.group.size_min),
        "sizeMax": str(look.group.size_max),
        "paused": str(look.group.paused),
        "dryRun": str(look.group.dry_run),
        "epoch": str(epoch),
        **_measured(report),
    }
    return Decision(
        f"groups/{look.group.group}", look.now_ms, current, target, rule, message,
        tuple(sorted(inputs.items())), enacted,
    )  # fmt: skip


def _scaled(report: ScaleReport) -> tuple[str, str]:
    drain = report.measurement.drain_ms if report.measurement else None
    takes = "unknown" if drain is None else f"{float(drain) / 1_000:.1f} s"
    if report.created + report.resumed + report.drains_cancelled:
        grown = f"{report.created} are bought, {report.resumed} woken"
        if drain is None or not report.evaluated:
            return "MINIMUM", f"Fewer workers serve than the group keeps: {grown}."
        return "DRAINS_TOO_SLOWLY", f"The queue takes {takes} to drain: {grown}."
    if report.shut_down:
        return "DRAINS_QUICKLY", f"The queue takes {takes} to drain: {report.shut_down} may go."
    if report.refused_at_limit:
        return "AT_LIMIT", f"The queue takes {takes} to drain, and there is no room for more."
    return report.reason, f"The queue takes {takes} to drain; the workers stay as they are."


def _measured(report: ScaleReport | None) -> dict[str, str]:
    if report is None:
        return {}
    found = {
        "active": report.active, "arriving": report.arriving, "sleeping": report.sleeping,
        "draining": report.draining, "aimedAt": report.aimed_at,
    }  # fmt: skip
    measured = {name: str(value) for name, value in found.items()}
    if report.measurement is not None:
        measured |= {
            "threads": str(report.measurement.threads),
            "samples": str(report.measurement.samples),
            "drainMs": _shown(report.measurement.drain_ms),
            "meanQueue": _shown(report.measurement.mean_queue),
            "meanJobMs": _shown(report.measurement.mean_job_ms),
        }
    return measured


def _shown(value: Fraction | None) -> str:
    return "unknown" if value is None else f"{float(value):.3f}"
