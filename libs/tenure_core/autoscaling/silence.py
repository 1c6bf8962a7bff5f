"""Who is heard, who is silent, and when silence is the observer's own fault.

One missed interval makes a machine suspect and asks a second source; only several missed intervals
together with that source, or a long silence, make it dead (P05). If many are silent or bad at
once, nothing destructive is done (P06). All times are the receiver's monotonic clock (P30).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tenure_core.autoscaling.group_config import ElasticGroupConfig, SilencePolicy
from tenure_core.autoscaling.heartbeats import PPM, HeartbeatHistory
from tenure_core.autoscaling.machines import (
    ApplicationState,
    CommandKind,
    ListedMachine,
    MachineRecord,
    MachineState,
    Probe,
)
from tenure_core.timebase import Millis


class Heard(StrEnum):
    """What is known of an agent now: its fresh state, or how long it has been silent.

    BUSY is READY with work in flight, or with nothing known of it: an agent reports READY as soon
    as it has unsubscribed, while jobs still run.
    """

    NEVER = "NEVER"
    INIT = "INIT"
    READY = "READY"
    BUSY = "BUSY"
    RUNNING = "RUNNING"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    ERROR = "ERROR"
    SUSPECT = "SUSPECT"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class Health:
    """One machine's part in the question whether the observer can be trusted."""

    state: MachineState
    heard: Heard


def living_history(record: MachineRecord, history: HeartbeatHistory) -> HeartbeatHistory:
    """Return the heartbeats that count: those received since the machine last fell asleep."""
    deaf_until = record.deaf_until_ms
    if deaf_until is None:
        return history
    return HeartbeatHistory(
        tuple(entry for entry in history.entries if entry.received_at_ms > deaf_until),
        history.reported_since_ms,
    )


def heard(
    machine: ListedMachine,
    record: MachineRecord,
    history: HeartbeatHistory,
    *,
    now_ms: Millis,
    config: ElasticGroupConfig,
) -> Heard:
    """Return what is known of the agent of `machine` at `now_ms`.

    After VM_SUSPEND only a heartbeat received more than one decision interval later counts: it
    says that the suspension has failed.
    """
    latest = living_history(record, history).latest
    if latest is None:
        return Heard.NEVER
    if record.last is CommandKind.VM_SUSPEND:
        grace_ends = record.since_ms + config.decision_interval_ms
        if latest.received_at_ms <= grace_ends:
            return Heard.NEVER
    silent_ms = now_ms - latest.received_at_ms
    if silent_ms > config.decision_interval_ms:
        return _silent(machine, silent_ms, config)
    if latest.app_state is ApplicationState.READY:
        return Heard.READY if latest.in_flight == 0 else Heard.BUSY
    return Heard(latest.app_state)


def _silent(machine: ListedMachine, silent_ms: Millis, config: ElasticGroupConfig) -> Heard:
    policy = config.silence
    several = silent_ms > policy.missed_intervals * config.decision_interval_ms
    if several and (machine.probe is Probe.DEAD or machine.fenced):
        return Heard.DEAD
    if silent_ms > policy.give_up_ms:
        return Heard.DEAD
    return Heard.SUSPECT


def observer_in_doubt(healths: Iterable[Health], policy: SilencePolicy) -> bool:
    """Say whether so many machines are silent or bad at once that the observer is to blame.

    Machines that sleep, start or were never heard are not expected to speak and count on neither
    side.
    """
    expected = bad = 0
    for health in healths:
        ill = health.state in (MachineState.FAILED, MachineState.UNKNOWN) or (
            health.state is MachineState.ACTIVE and health.heard in (Heard.SUSPECT, Heard.DEAD)
        )
        well = health.state is MachineState.ACTIVE and health.heard is not Heard.NEVER
        expected += ill or well
        bad += ill
    return bad >= policy.halt_min and bad * PPM > policy.halt_share_ppm * expected
