"""Reads the ancestor's own outcomes, runs the same case through our rules, and compares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from tenure_core.planning.haizea.entries import Amounts, HaizeaLease, Kind, State
from tenure_core.planning.haizea.placing import HaizeaWorld
from tenure_core.planning.haizea.settings import HaizeaRules, Migration, Suspension
from tenure_core.planning.haizea.table import HaizeaTable
from tenure_sim.haizea import HaizeaSimulation

_KINDS = {"Best-effort": Kind.BEST_EFFORT, "AR": Kind.ADVANCE, "Immediate": Kind.IMMEDIATE}
_TYPES = ("CPU", "Memory", "Disk", "Net-in", "Net-out")
_PLENTY = 1_000_000
_CASE_FIELDS = {
    "case", "config", "results", "stats", "cpu_utilization_average", "queue_size_average",
    "cpu_utilization", "queue_size", "stable_checked", "haizea_crashed", "unstable_in_haizea",
    "leases",
}  # fmt: skip
_RESULT_FIELDS = {
    "id", "state", "start", "end", "waiting_time", "vm_time", "bounded_slowdown", "events",
    "segments", "suspensions", "resumptions", "price",
}  # fmt: skip
_OPTIONS = {
    "accounting.probes", "deploy-imagetransfer.avoid-redundant-transfers",
    "deploy-imagetransfer.diskimage-cache-size", "deploy-imagetransfer.diskimage-reuse",
    "deploy-imagetransfer.force-imagetransfer-time", "deploy-imagetransfer.transfer-mechanism",
    "general.lease-failure-handling", "general.lease-preparation", "general.loglevel",
    "general.mode", "general.persistence-file", "pricing.rate", "scheduling.backfilling",
    "scheduling.backfilling-reservations", "scheduling.enactment-overhead",
    "scheduling.force-scheduling-threshold", "scheduling.mapper", "scheduling.migration",
    "scheduling.non-schedulable-interval", "scheduling.override-resume-time",
    "scheduling.override-suspend-time", "scheduling.policy-admission",
    "scheduling.policy-host-selection", "scheduling.policy-preemption",
    "scheduling.policy-pricing", "scheduling.resume-rate",
    "scheduling.scheduling-threshold-factor", "scheduling.shutdown-time",
    "scheduling.suspend-rate", "scheduling.suspendresume-exclusion", "scheduling.suspension",
    "scheduling.wakeup-interval", "simulation.clock", "simulation.imagetransfer-bandwidth",
    "simulation.resources", "simulation.starttime", "simulation.stop-when",
    "tracefile.add-overhead", "tracefile.annotationfile", "tracefile.bootshutdown-overhead",
    "tracefile.injectionfile", "tracefile.override-memory",
    "tracefile.runtime-slowdown-overhead", "tracefile.tracefile",
}  # fmt: skip


class HashTable:
    """The order in which a hash table of small numbers lists them, as the ancestor's runtime did.

    Open addressing with perturbed probing in a power of two of places, at least 8; removed numbers
    leave a mark; when two thirds of the places are used or marked, the table is built anew with
    more than four places a number.
    """

    def __init__(self) -> None:
        self._places: list[int | None] = [None] * 8
        self._used: set[int] = set()
        self._filled = 0

    def add(self, number: int) -> None:
        self._put(number)
        if self._filled * 3 >= len(self._places) * 2:
            size = 8
            while size <= len(self._used) * 4:
                size *= 2
            old = [kept for kept in self._places if kept in self._used]
            self._places = [None] * size
            self._filled = 0
            for kept in old:
                self._put(kept)

    def remove(self, number: int) -> None:
        self._used.discard(number)

    def arrived(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        by_id = {lease.id: lease for lease in leases}
        return [by_id[n] for n in self._places if n in by_id]

    def lifted(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        return sorted(leases, key=lambda lease: lease.id)

    def _put(self, number: int) -> None:
        mask, perturb = len(self._places) - 1, number
        place = at = number & mask
        marked: int | None = None
        while (there := self._places[at]) is not None:
            if marked is None and there not in self._used:
                marked = at
            place = place * 5 + perturb + 1
            perturb >>= 5
            at = place & mask
        if marked is None:
            self._filled += 1
        self._places[at if marked is None else marked] = number
        self._used.add(number)


class Unsupported(Exception):
    """The case needs a rule that we do not have; the text names it."""


@dataclass(frozen=True)
class HaizeaCase:
    """One case of one workload of one file."""

    file: str
    version: str
    workload: str
    number: int
    site: list[dict[str, Any]]
    config: Mapping[str, str]
    leases: list[dict[str, Any]]
    results: list[dict[str, Any]]
    crashed: bool
    unstable: bool

    @property
    def group(self) -> str:
        """Return the workload group: file name without what tells its workloads apart."""
        return self.file.removesuffix(".json")


def read_cases(path: Path) -> Iterator[HaizeaCase]:
    """Return the cases of a file; an unknown field or option fails."""
    document = json.loads(path.read_text())
    assert document["format"] == "haizea-golden-1", path.name
    for workload in document["workloads"]:
        common = {
            f"{section}.{option}": value
            for section, options in workload["common_config"].items()
            for option, value in options.items()
        }
        for number, case in enumerate(workload["cases"]):
            assert set(case) <= _CASE_FIELDS, set(case) - _CASE_FIELDS
            config = common | case["config"]
            assert set(config) <= _OPTIONS, set(config) - _OPTIONS
            for result in case["results"]:
                assert set(result) <= _RESULT_FIELDS, set(result) - _RESULT_FIELDS
            yield HaizeaCase(
                path.name,
                path.name.split("-")[0],
                workload["workload"],
                number,
                workload["site"],
                config,
                case.get("leases", workload["leases"]),
                case["results"],
                "haizea_crashed" in case,
                bool(case.get("unstable_in_haizea")),
            )


def rules_of(case: HaizeaCase) -> HaizeaRules:
    """Return the rules that the configuration asks for."""
    get = case.config.get
    if get("scheduling.mapper", "greedy") != "greedy":
        raise Unsupported("deadline mapper")
    if get("scheduling.policy-pricing", "free") != "free":
        raise Unsupported("pricing")
    preemption = get("scheduling.policy-preemption", "no-preemption")
    if preemption == "deadline":
        raise Unsupported("deadline preemption")
    if "simulation.stop-when" in case.config:
        raise Unsupported("stop-when")
    name = case.config["scheduling.backfilling"]
    futures = {
        "off": 0,
        "aggressive": 1,
        "conservative": None,
        "intermediate": int(get("scheduling.backfilling-reservations", "0")),
    }[name]
    first = case.version == "1.0"
    if first:
        raise Unsupported("release 1.0")
    return HaizeaRules(
        futures_max=futures,
        passing=name != "off",
        suspension=Suspension(case.config["scheduling.suspension"]),
        migration=Migration(get("scheduling.migration", "no")),
        suspend_rate=float(get("scheduling.suspend-rate", "32")),
        resume_rate=float(get("scheduling.resume-rate", "32")),
        suspend_override=_whole(get("scheduling.override-suspend-time")),
        resume_override=_whole(get("scheduling.override-resume-time")),
        global_exclusion=get("scheduling.suspendresume-exclusion") == "global",
        threshold_factor=int(get("scheduling.scheduling-threshold-factor", "1")),
        threshold=_whole(get("scheduling.force-scheduling-threshold")),
        shutdown_s=int(get("scheduling.shutdown-time", "0")),
        enactment_s=int(get("scheduling.enactment-overhead", "0")),
        greedy_hosts=get("scheduling.policy-host-selection", "greedy") == "greedy",
        advance_preempts=preemption in ("ar-preempts-everything", "ar-preempts-be"),
        accepts_advance=get("scheduling.policy-admission", "accept-all") == "accept-all",
        bandwidth=int(get("simulation.imagetransfer-bandwidth", "100")),
        transfers=get("general.lease-preparation", "unmanaged") == "imagetransfer",
        multicast=get("deploy-imagetransfer.transfer-mechanism") == "multicast",
        avoids_redundant=get("deploy-imagetransfer.avoid-redundant-transfers") != "False",
        caches=get("deploy-imagetransfer.diskimage-reuse") == "image-caches",
        cache_size=int(get("deploy-imagetransfer.diskimage-cache-size", "-1")),
        forced_transfer=_whole(get("deploy-imagetransfer.force-imagetransfer-time")),
        first_release=first,
    )


def run_case(case: HaizeaCase) -> list[dict[str, Any]]:
    """Run the case and return our results in the ancestor's form, by id."""
    rules = rules_of(case)
    capacities: list[Amounts] = []
    for group in case.site:
        capacities += [_amounts(group["resources"], _PLENTY)] * group["count"]
    leases = [_lease(entry) for entry in case.leases]
    world = HaizeaWorld(rules, HaizeaTable(capacities), arrangement=HashTable())
    HaizeaSimulation(world, leases).run()
    return [_result(lease) for lease in sorted(leases, key=lambda lease: lease.id)]


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _amounts(resources: dict[str, list[int]], missing: int) -> Amounts:
    unknown = set(resources) - set(_TYPES)
    assert not unknown, unknown
    if any(len(amounts) > 1 for amounts in resources.values()):
        raise Unsupported("several instances of a resource")
    return tuple(resources[name][0] if name in resources else missing for name in _TYPES)


def _lease(entry: dict[str, Any]) -> HaizeaLease:
    if entry["type"] not in _KINDS:
        assert entry["type"] == "Deadline", entry["type"]
        raise Unsupported("deadline leases")
    demands: list[Amounts] = []
    for group in entry["nodes"]:
        demands += [_amounts(group["resources"], 0)] * group["count"]
    known = entry.get("real_duration")
    start = entry["start"]
    return HaizeaLease(
        entry["id"],
        _KINDS[entry["type"]],
        entry["arrival"],
        start if isinstance(start, int) else None,
        ceil(entry["duration"]),
        tuple(demands),
        tuple(demand[1] for demand in demands),
        known if known is not None and known < entry["duration"] else None,
        tuple(entry["image"]) if "image" in entry else None,
    )


def _result(lease: HaizeaLease) -> dict[str, Any]:
    result: dict[str, Any] = {"id": lease.id, "state": lease.state.value}
    if lease.first_start is not None:
        result["start"] = lease.first_start
        result["waiting_time"] = lease.first_start - lease.arrival
        result["vm_time"] = lease.ran
    if lease.end is not None:
        result["end"] = lease.end
        result["bounded_slowdown"] = round((lease.end - lease.arrival) / max(10, lease.ran), 6)
    if lease.suspensions:
        result["suspensions"] = lease.suspensions
    if lease.resumptions:
        result["resumptions"] = lease.resumptions
    if lease.segments:
        result["segments"] = [
            [start, end, list(nodes), *(["cancelled"] if cancelled else [])]
            for start, end, nodes, cancelled in lease.segments
        ]
    if lease.events:
        result["events"] = [_event(event) for event in lease.events]
    if lease.state is State.REJECTED:
        result.pop("vm_time", None)
    return result


def _event(event: tuple[Any, ...]) -> list[Any]:
    parts: list[Any] = []
    for part in event:
        if isinstance(part, dict):
            parts.append({str(key): _pairs(value) for key, value in part.items()})
        else:
            parts.append(list(part) if isinstance(part, tuple) else part)
    return parts


def _pairs(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return list(value)
    return sorted(list(pair) for pair in value)
