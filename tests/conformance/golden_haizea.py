"""Reads the ancestor's own outcomes, runs the same case through our rules, and compares."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

from tenure_core.planning.haizea.amounts import Amounts
from tenure_core.planning.haizea.entries import HaizeaLease, Kind, State
from tenure_core.planning.haizea.placing import HaizeaWorld
from tenure_core.planning.haizea.pricing import Prices
from tenure_core.planning.haizea.settings import HaizeaRules, Suspension
from tenure_core.planning.haizea.table import HaizeaTable
from tenure_core.policies.bundle import Migration
from tenure_core.policies.pricing import Adaptive, Constant, Free, Maximum, PricingPolicy
from tenure_sim.haizea import HaizeaSimulation, StopWhen

_KINDS = {
    "Best-effort": Kind.BEST_EFFORT,
    "AR": Kind.ADVANCE,
    "Immediate": Kind.IMMEDIATE,
    "Deadline": Kind.DEADLINE,
}
_TYPES = ("CPU", "Memory", "Disk", "Net-in", "Net-out")
_PLENTY = 1_000_000
_NEVER = 2**53
_ORDERS_TRIED = 24
_LEASES_TO_TRY = 40
_STOPS = {
    "all-leases-done": StopWhen.ALL_DONE,
    "besteffort-submitted": StopWhen.BEST_EFFORT_SUBMITTED,
    "besteffort-done": StopWhen.BEST_EFFORT_DONE,
}
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

    def __init__(self, order: int = 0) -> None:
        """Order leases that are placed anew by id, or at random by the seed `order`."""
        self.order = order
        self.ambiguous_since: int | None = None
        self.now: Callable[[], int] = int
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
        if len(leases) > 1 and self.ambiguous_since is None:
            self.ambiguous_since = self.now()
        if not self.order:
            return sorted(leases, key=lambda lease: lease.id)
        return sorted(leases, key=lambda lease: Random(self.order * 10_007 + lease.id).random())

    def tied(self, leases: list[HaizeaLease]) -> list[HaizeaLease]:
        """Order by id, highest first; equal scores of two leases are decided by this."""
        arrivals = [lease.arrival for lease in leases if lease.kind is Kind.BEST_EFFORT]
        if len(set(arrivals)) < len(arrivals) and self.ambiguous_since is None:
            self.ambiguous_since = self.now()
        if not self.order:
            return sorted(leases, key=lambda lease: -lease.id)
        return sorted(leases, key=lambda lease: Random(self.order * 10_009 + lease.id).random())

    def homes(self, nodes: list[int]) -> list[int]:
        """Order as a set does that was made of the keys of a mapping by node."""
        return _as_keys(_as_keys(nodes))

    def moved(self, vnodes: list[int]) -> list[int]:
        """Order as the keys of a mapping by vnode."""
        return _as_keys(vnodes)

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


def _as_keys(numbers: list[int]) -> list[int]:
    """Return the numbers in the order of a mapping to which they were added one by one."""
    table = HashTable()
    for number in numbers:
        table.add(number)
    return [number for number in table._places if number is not None]


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
    durations: Mapping[int, int]
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
                {entry["id"]: entry["duration"] for entry in workload["leases"]},
                "haizea_crashed" in case,
                bool(case.get("unstable_in_haizea")),
            )


def rules_of(case: HaizeaCase) -> HaizeaRules:
    """Return the rules that the configuration asks for."""
    get = case.config.get
    if get("scheduling.policy-pricing", "free") == "random":
        raise Unsupported("random prices")
    preemption = get("scheduling.policy-preemption", "no-preemption")
    name = case.config["scheduling.backfilling"]
    futures = {
        "off": 0,
        "aggressive": 1,
        "conservative": None,
        "intermediate": int(get("scheduling.backfilling-reservations", "0")),
    }[name]
    first = case.version == "1.0"
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
        deadlines_yield=preemption == "deadline",
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


class Outcome(Enum):
    """How a case compares."""

    AGREES = "agrees"
    OTHER_ORDER = "agrees in another order of objects (fault 16)"
    AFTER_ORDER = "differs after an order of objects decided (fault 16)"
    DIFFERS = "differs"
    SURVIVED = "the ancestor crashed, ours ended"
    UNSTABLE = "unstable in the ancestor"
    UNSUPPORTED = "not supported"


def compare(case: HaizeaCase) -> tuple[Outcome, str]:
    """Run the case and say how it compares, and by what it differs or what it lacks."""
    try:
        ours, first = run_case(case)
    except Unsupported as lacking:
        return Outcome.UNSUPPORTED, str(lacking)
    if case.crashed:
        return Outcome.SURVIVED, ""
    if case.unstable:
        return Outcome.UNSTABLE, ""
    theirs = _normal(case.results)
    if ours == theirs:
        return Outcome.AGREES, ""
    differing = [_first_difference(ours[key], theirs[key]) for key in theirs]
    if first is None or min(differing) < first:
        return Outcome.DIFFERS, f"from {min(differing)} on"
    orders = _ORDERS_TRIED if len(case.leases) <= _LEASES_TO_TRY else 0
    for order in range(1, orders):
        if run_case(case, order)[0] == theirs:
            return Outcome.OTHER_ORDER, f"order {order}"
    return Outcome.AFTER_ORDER, f"from {min(differing)} on, orders differ from {first} on"


def run_case(case: HaizeaCase, order: int = 0) -> tuple[dict[int, dict[str, Any]], int | None]:
    """Return our results in the ancestor's form, and the first instant at which it had to order
    objects by address, None when it never had to."""
    rules = rules_of(case)
    capacities: list[Amounts] = []
    several = {
        name
        for group in case.site
        for name, amounts in group["resources"].items()
        if len(amounts) > 1
    }
    for group in case.site:
        capacities += [_amounts(group["resources"], _PLENTY, several)] * group["count"]
    leases = [_lease(entry, several) for entry in case.leases]
    table = HashTable(order)
    rate = float(case.config.get("pricing.rate", "0"))
    pricing: PricingPolicy = {
        "free": Free(),
        "constant": Constant(rate),
        "maximum": Maximum(rate),
        "adaptive": Adaptive(rate),
    }[case.config.get("scheduling.policy-pricing", "free")]
    prices = Prices(pricing)
    world = HaizeaWorld(rules, HaizeaTable(capacities), arrangement=table, prices=prices)
    table.now = lambda: world.now
    stop = _STOPS[case.config.get("simulation.stop-when", "all-leases-done")]
    HaizeaSimulation(world, leases, stop).run()
    seen = [
        lease for lease in leases if lease.id in world.leases or lease.state is not State.PENDING
    ]
    leases = leases if stop is StopWhen.ALL_DONE else seen
    asked = case.durations if rules.first_release else {}
    results = [_result(lease, asked.get(lease.id, lease.ran)) for lease in leases]
    return _normal(results), table.ambiguous_since


def _normal(results: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return results by id, with events in an order of their own and users of images sorted."""
    normal: dict[int, dict[str, Any]] = {}
    for result in results:
        copy = dict(result)
        events = []
        for event in copy.get("events", []):
            parts = list(event)
            if parts[0] == "transfer":
                parts[4] = {node: sorted(users) for node, users in parts[4].items()}
            events.append(parts)
        if events:
            copy["events"] = sorted(events, key=lambda e: json.dumps(e, sort_keys=True))
        normal[copy["id"]] = copy
    return normal


def _first_difference(ours: dict[str, Any], theirs: dict[str, Any]) -> int:
    """Return the first instant at which the two went apart: of stretches and events that only one
    of them has, the start, or the end where both begin alike."""
    if ours == theirs:
        return _NEVER
    points: list[int] = []
    for field, at in (("segments", 0), ("events", 1)):
        mine, yours = ours.get(field, []), theirs.get(field, [])
        starts = {part[at] for part in mine} & {part[at] for part in yours}
        for part in [*(p for p in mine if p not in yours), *(p for p in yours if p not in mine)]:
            if field == "segments" and part[0] in starts:
                points.append(_NEVER if part[1] is None else part[1])
            else:
                points.append(part[at])
    return min(points, default=0)


def _whole(text: str | None) -> int | None:
    return None if text is None else int(text)


def _amounts(resources: dict[str, list[int]], missing: int, several: set[str]) -> Amounts:
    """Return amounts in the order of the types; those of `several` instances as tuples."""
    unknown = set(resources) - set(_TYPES)
    assert not unknown, unknown
    return tuple(
        tuple(resources.get(name, [missing]))
        if name in several
        else resources.get(name, [missing])[0]
        for name in _TYPES
    )


def _lease(entry: dict[str, Any], several: set[str]) -> HaizeaLease:
    demands: list[Amounts] = []
    for group in entry["nodes"]:
        demands += [_amounts(group["resources"], 0, several)] * group["count"]
    known = entry.get("real_duration")
    extras = entry.get("extras", {})
    start = entry["start"]
    return HaizeaLease(
        entry["id"],
        _KINDS[entry["type"]],
        entry["arrival"],
        start if isinstance(start, int) else None,
        ceil(entry["duration"]),
        tuple(demands),
        tuple(memory for demand in demands if isinstance(memory := demand[1], int)),
        known if known is not None and known < entry["duration"] else None,
        tuple(entry["image"]) if "image" in entry else None,
        entry.get("deadline"),
        entry.get("user"),
        float(extras["simul_userrate"]) if "simul_userrate" in extras else None,
    )


def _result(lease: HaizeaLease, duration: int) -> dict[str, Any]:
    """Return the result; slowdown is measured by the time that ran, in 1.0 by the time asked."""
    result: dict[str, Any] = {"id": lease.id, "state": lease.state.value}
    if lease.first_start is not None:
        result["start"] = lease.first_start
        result["waiting_time"] = lease.first_start - lease.arrival
        if lease.ran:
            result["vm_time"] = lease.ran
    if lease.end is not None:
        result["end"] = lease.end
        result["bounded_slowdown"] = round((lease.end - lease.arrival) / max(10, duration), 6)
    if lease.price is not None:
        result["price"] = lease.price
    if lease.suspensions:
        result["suspensions"] = lease.suspensions
    if lease.resumptions:
        result["resumptions"] = lease.resumptions
    if lease.segments:
        result["segments"] = [
            [start, end, list(nodes), *(["cancelled"] if cancelled else [])]
            for start, end, nodes, cancelled in lease.segments
        ]
    run = lease.active_run
    if run is not None:
        nodes = [run.mapping[vnode] for vnode in sorted(run.mapping)]
        result.setdefault("segments", []).append([run.start, None, nodes])
    if lease.events:
        result["events"] = [_event(event) for event in lease.events]
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
