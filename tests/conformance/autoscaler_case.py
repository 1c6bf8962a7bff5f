"""Reads the autoscaler case files and turns their values into the core's, strictly.

Unknown schemas, kinds, fields and properties fail. `settings` gives the ancestor's own behaviour
where the ancestor has a choice (one missed interval, plain mean, waiting for starts, no damping),
and the new system's setting wherever the case names the property that corrects it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tenure_core.autoscaling.group_config import (
    Damping,
    Deadlines,
    DrainBand,
    ElasticGroupConfig,
    ServiceTime,
    SilencePolicy,
    WhileStarting,
)
from tenure_core.autoscaling.heartbeats import PPM, Heartbeat
from tenure_core.autoscaling.machines import ApplicationState

KINDS = {
    "vm_decision", "tick", "heartbeat_merge", "bootstrap", "command_log", "sequence",
    "future_node",
}  # fmt: skip
REJECTED = "reject such a configuration at start"
_FIELDS = {"id", "kind", "title", "branch", "config", "input", "expect"}
_OPTIONAL = {"required_of_new_system", "note"}
_CONFIG = {
    "decision_interval", "max_startup_time", "max_transition_time", "max_shutdown_time",
    "min_measure_load_hb", "max_hb_history", "max_avg_load", "min_avg_time", "max_avg_time",
    "max_workers",
}  # fmt: skip
_HEARTBEAT = {
    "app_state", "received_at", "cpu", "mem", "disk", "avg_time", "threads", "queue_length",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One case as it stands in its file."""

    id: str
    kind: str
    config: Mapping[str, Any]
    input: Mapping[str, Any]
    expect: Mapping[str, Any]
    required: str

    @property
    def properties(self) -> tuple[str, ...]:
        """Return the properties by which a correct system differs from the ancestor."""
        return tuple(re.findall(r"P\d\d", self.required))


def read_cases(folder: Path) -> list[Case]:
    """Return every case of every file, in file order; anything unknown is an error."""
    cases = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text())
        assert set(document) == {"schema", "group", "cases"}, path
        assert document["schema"] == "autoscaler-cases/1", path
        cases += [_case(raw) for raw in document["cases"]]
    return cases


def _case(raw: Mapping[str, Any]) -> Case:
    keys = set(raw)
    assert _FIELDS <= keys <= _FIELDS | _OPTIONAL, f"{raw.get('id')}: fields {sorted(keys)}"
    assert raw["kind"] in KINDS, f"{raw['id']}: unknown kind {raw['kind']}"
    required = raw.get("required_of_new_system", "")
    known = required == "" or required == REJECTED or re.match(r"P\d\d", required)
    assert known, f"{raw['id']}: nothing known of {required!r}"
    return Case(raw["id"], raw["kind"], raw["config"], raw["input"], raw["expect"], required)


def only(value: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Fail when a mapping carries a field that the adapter does not interpret."""
    unknown = set(value) - set(allowed)
    assert not unknown, f"fields not interpreted: {sorted(unknown)}"


def ms(seconds: float) -> int:
    """Return whole seconds of a case as milliseconds."""
    assert seconds == int(seconds), seconds
    return int(seconds) * 1000


def ppm(share: float) -> int:
    """Return a fraction as parts per million, exactly."""
    exact = Fraction(str(share)) * PPM
    assert exact.denominator == 1, f"{share} is finer than one part per million"
    return int(exact)


def settings(config: Mapping[str, Any], properties: Iterable[str] = ()) -> ElasticGroupConfig:
    """Return the group settings of a case, under the properties that it names."""
    only(config, _CONFIG)
    named = set(properties)
    silence = SilencePolicy(
        missed_intervals=3 if "P05" in named else 1,
        halt_min=3 if "P06" in named else 10**9,
    )
    band = DrainBand(
        lower_ms=ms(config["min_avg_time"]),
        upper_ms=ms(config["max_avg_time"]),
        samples=config["min_measure_load_hb"],
        load_limit_ppm=ppm(config["max_avg_load"]),
        running_samples_only=bool(named),
        service_time=ServiceTime.WEIGHTED if "P12" in named else ServiceTime.PLAIN,
        while_starting=(WhileStarting.COUNT if named & {"P10", "P18"} else WhileStarting.WAIT),
    )
    return ElasticGroupConfig(
        max_workers=config["max_workers"],
        decision_interval_ms=ms(config["decision_interval"]),
        heartbeat_interval_ms=ms(config["decision_interval"]) // 5,
        history_max=config["max_hb_history"],
        deadlines=Deadlines(
            startup_ms=ms(config["max_startup_time"]),
            transition_ms=ms(config["max_transition_time"]),
            shutdown_ms=ms(config["max_shutdown_time"]),
            suspend_ms=ms(config["max_shutdown_time"]),
        ),
        silence=silence,
        band=band,
        damping=Damping(
            in_window_ms=0,
            out_window_ms=0,
            in_cooldown_ms=0,
            out_cooldown_ms=0,
            anti_flap=bool(named),
        ),
    )


def heartbeat(
    raw: Mapping[str, Any], sequence: int, *, in_flight: int | None = None, master_epoch: int = 1
) -> Heartbeat:
    """Return one heartbeat of a case; READY means idle there, anything else says nothing of work.

    The order of the case's buffer becomes the sequence: the cases carry no sender's counter.
    """
    only(raw, _HEARTBEAT)
    state = ApplicationState(raw["app_state"])
    if in_flight is None and state is ApplicationState.READY:
        in_flight = 0
    return Heartbeat(
        incarnation=1,
        sequence=sequence,
        received_at_ms=ms(raw["received_at"]),
        app_state=state,
        cpu_ppm=ppm(raw["cpu"]),
        memory_ppm=ppm(raw["mem"]),
        disk_ppm=ppm(raw["disk"]),
        threads=raw["threads"],
        mean_job_ms=Fraction(str(raw["avg_time"])) * 1000,
        in_flight=in_flight,
        queue_length=raw["queue_length"],
        master_epoch=master_epoch,
    )
