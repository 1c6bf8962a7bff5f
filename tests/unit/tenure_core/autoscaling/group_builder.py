"""Builds elastic groups for the tests: a running master, workers awake and asleep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.conformance.autoscaler_live import LiveWorld
from tests.conformance.autoscaler_world import ScriptedWorld

from tenure_core.autoscaling.group_config import Damping, ElasticGroupConfig

NOW = 100_000
"""The present in whole seconds."""

UNDAMPED = Damping(in_window_ms=0, out_window_ms=0, in_cooldown_ms=0, out_cooldown_ms=0)
CONFIG = ElasticGroupConfig(damping=UNDAMPED)


def beat(state: str = "RUNNING", *, age: int = 2, queue: int = 0, **more: Any) -> dict[str, Any]:
    """Return one heartbeat as the cases write it."""
    return {
        "app_state": state, "received_at": NOW - age, "cpu": 0.5, "mem": 0.3, "disk": 0.2,
        "avg_time": 3.0, "threads": 1, "queue_length": queue, **more,
    }  # fmt: skip


def group(
    *,
    awake: int = 2,
    asleep: int = 0,
    queue: Sequence[int] = (0, 0, 0),
    waiting: bool = False,
    config: ElasticGroupConfig = CONFIG,
    worker: dict[str, Any] | None = None,
    **options: Any,
) -> ScriptedWorld:
    """Return a group whose master `m` runs, with workers w1, w2 ... and sleepers s1, s2 ..."""
    awakes = [f"w{place + 1}" for place in range(awake)]
    sleepers = [f"s{place + 1}" for place in range(asleep)]
    vms = [{"id": "m", "type": "MASTER", "state": "ACTIVE"}]
    vms += [{"id": name, "type": "WORKER", "state": "ACTIVE"} for name in awakes]
    vms += [{"id": name, "type": "WORKER", "state": "SUSPENDED"} for name in sleepers]
    logged = {name: {"command": "APP_INIT", "first_sent_at": NOW - 500} for name in ["m", *awakes]}
    logged |= {name: {"command": "VM_SUSPEND", "first_sent_at": NOW - 500} for name in sleepers}
    beats = {name: [beat(**(worker or {}))] * 5 for name in awakes}
    beats["m"] = [
        beat(age=2 * (len(queue) - place), queue=length) for place, length in enumerate(queue)
    ]
    raw = {
        "now": NOW, "master": "m", "waiting_for_master": waiting, "worker_counter": 0,
        "vms": vms, "last_commands": logged, "heartbeats": beats, "has_start_time": [],
    }  # fmt: skip
    return ScriptedWorld.of(raw, config, **options)


def live(world: ScriptedWorld, **options: Any) -> LiveWorld:
    """Return the group as a world that goes on by itself, one decision interval before now."""
    return LiveWorld(world, NOW * 1000 - world.config.decision_interval_ms, **options)


def with_config(config: ElasticGroupConfig, section: str, **changes: Any) -> ElasticGroupConfig:
    """Return the settings with one section changed."""
    return replace(config, **{section: replace(getattr(config, section), **changes)})
