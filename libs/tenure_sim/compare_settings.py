"""What a configuration of the ancestor means to us: policies, site, overheads of the leases."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tenure_core.leases.lease import BestEffort
from tenure_core.policies.admission import AcceptAll, AdmissionPolicy, NoAdvance
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import MEGABIT, Migration, Overheads, Policies
from tenure_core.policies.placement import HostSelection
from tenure_core.policies.preemption import (
    BookedPreemptBestEffort,
    NoPreemption,
    PreemptionPolicy,
)
from tenure_core.policies.pricing import (
    Adaptive,
    Constant,
    Free,
    Maximum,
    PricingPolicy,
    Random,
)
from tenure_core.resources import ResourceVector
from tenure_core.timebase import SECOND_MS
from tenure_sim.annotate import as_leases, as_workload
from tenure_sim.compare_configurations import Configuration, wrong
from tenure_sim.lwf import parse_site
from tenure_sim.lwf_values import MIB
from tenure_sim.lwf_xml import parse_xml
from tenure_sim.site import Site
from tenure_sim.workload import SimLease, Workload

_UNITS: Final = {"cpu": 10, "memory": MIB, "disk": MIB}


def policies_of(configuration: Configuration) -> Policies:
    """Return what the planner is told. Raises Invalid for words that mean nothing."""
    option = configuration.option
    suspends = option("scheduling", "suspension", "all").lower() != "none"
    preemption: PreemptionPolicy = BookedPreemptBestEffort(suspends=suspends)
    match option("scheduling", "policy-preemption", "no-preemption").lower():
        case "no-preemption":
            preemption = NoPreemption()
        case "ar-preempts-everything":
            pass
        case other:
            raise wrong(configuration.name, f"policy-preemption {other!r} is not known")
    greedy = option("scheduling", "policy-host-selection", "greedy").lower() == "greedy"
    return Policies(
        backfilling=_backfilling(configuration),
        preemption=preemption,
        host_selection=HostSelection.BEST_FIT if greedy else HostSelection.FIRST_FIT,
        overheads=Overheads(
            _seconds(configuration, "scheduling", "override-suspend-time"),
            _seconds(configuration, "scheduling", "override-resume-time"),
            _seconds(configuration, "scheduling", "shutdown-time"),
            *_migration(configuration),
        ),
        threshold_ms=_seconds(configuration, "scheduling", "force-scheduling-threshold"),
        admission=_admission(configuration),
        partial_starts=suspends,
        pricing=_pricing(configuration),
    )


def site_of(configuration: Configuration) -> Site | None:
    """Return the nodes that a configuration names, None for those of the trace."""
    text = configuration.option("simulation", "resources", "in-tracefile")
    if text == "in-tracefile":
        return None
    if text.startswith("file:"):
        path = configuration.trace.parent / text.removeprefix("file:")
        root = parse_xml(path.name, path.read_bytes())
        return parse_site(root if root.tag == "site" else root.one("site"))
    count, *amounts = text.replace(",", " ").replace(";", " ").split()
    if not count.isdigit() or int(count) < 1 or not amounts:
        raise wrong(configuration.name, f"resources {text!r} is not `N TYPE:AMOUNT,…`")
    vector: dict[str, int] = {}
    for part in amounts:
        kind, _, amount = part.partition(":")
        if not amount.isdigit():
            raise wrong(configuration.name, f"resources: {part!r} is not TYPE:AMOUNT")
        vector[kind.lower()] = int(amount) * _UNITS.get(kind.lower(), 1)
    return Site.of_nodes(int(count), ResourceVector(vector))


def with_overheads(workload: Workload, configuration: Configuration) -> Workload:
    """Return the workload with the simulated overheads of its run times added.

    `runtime-slowdown-overhead` lengthens by so many per cent, `bootshutdown-overhead` by so many
    seconds, both of what is asked for and of what is really run. (The ancestor takes the real
    duration for the one asked for when it knows both; that is a fault of its.)
    """
    whom = configuration.option("tracefile", "add-overhead", "none").lower()
    if whom == "none":
        return workload
    percent = _number(configuration, "tracefile", "runtime-slowdown-overhead")
    boot = _seconds(configuration, "tracefile", "bootshutdown-overhead")

    def longer(span: int) -> int:
        return -(-span * (10_000 + round(percent * 100)) // 10_000) + boot

    def slowed(lease: SimLease) -> SimLease:
        if whom == "besteffort" and not isinstance(lease.spec.terms, BestEffort):
            return lease
        spec = replace(lease.spec, duration_ms=longer(lease.spec.duration_ms))
        return replace(lease, spec=spec, run_ms=longer(lease.run_ms))

    return as_workload(workload, [slowed(lease) for lease in as_leases(workload)])


def _migration(configuration: Configuration) -> tuple[Migration, int]:
    word = configuration.option("scheduling", "migration", "no").lower()
    try:
        migration = Migration(word)
    except ValueError:
        raise wrong(configuration.name, f"migration {word!r} is not known") from None
    megabits = _number(configuration, "simulation", "imagetransfer-bandwidth")
    if migration is Migration.YES and not megabits:
        raise wrong(configuration.name, "migration=yes needs imagetransfer-bandwidth")
    return migration, round(megabits * MEGABIT)


def _admission(configuration: Configuration) -> AdmissionPolicy:
    match configuration.option("scheduling", "policy-admission", "accept-all").lower():
        case "accept-all":
            return AcceptAll()
        case "no-ars":
            return NoAdvance()
        case other:
            raise wrong(configuration.name, f"policy-admission {other!r} is not known")


def _pricing(configuration: Configuration) -> PricingPolicy:
    def rate(name: str) -> float:
        return _number(configuration, "pricing", name)

    match configuration.option("scheduling", "policy-pricing", "free").lower():
        case "free":
            return Free()
        case "constant":
            return Constant(rate("rate"))
        case "maximum":
            return Maximum(rate("rate"))
        case "adaptive":
            return Adaptive(rate("rate"))
        case "random":
            return Random(rate("min-rate"), rate("max-rate"), round(rate("seed")))
        case other:
            raise wrong(configuration.name, f"policy-pricing {other!r} is not known")


def _backfilling(configuration: Configuration) -> Backfilling:
    word = configuration.option("scheduling", "backfilling", "off").lower()
    if word == "intermediate":
        return Backfilling.intermediate(
            round(_number(configuration, "scheduling", "backfilling-reservations"))
        )
    try:
        return Backfilling.parse(word)
    except ValueError as error:
        raise wrong(configuration.name, f"backfilling: {error}") from None


def _seconds(configuration: Configuration, section: str, name: str) -> int:
    return round(_number(configuration, section, name) * SECOND_MS)


def _number(configuration: Configuration, section: str, name: str) -> float:
    text = configuration.option(section, name, "0")
    if text.lower() == "none":
        return 0.0
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if number < 0 or number != number or number > 1e9:
        raise wrong(configuration.name, f"{section}.{name} is a number from 0, not {text!r}")
    return number
