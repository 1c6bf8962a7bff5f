"""`tenure simulate --autoscale`: a trace on fleets that boot, fail and cost, policy by policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from tenure_cli.simulation.bar import Bar
from tenure_cli.simulation.outputs import Outputs
from tenure_cli.simulation.policy_words import PolicyWords
from tenure_cli.simulation.replaying import Replay
from tenure_cli.simulation.tables import aligned
from tenure_cli.times import parse_duration
from tenure_core.errors import Invalid, Violation
from tenure_sim.fleet_figures import ROWS, FleetFigures, columns, figures_of
from tenure_sim.fleet_settings import FleetPolicy, FleetSettings
from tenure_sim.fleet_simulation import FleetSimulation
from tenure_sim.site import Site
from tenure_sim.workload import Workload

_NOT_FOR_FLEETS: Final = ("json", "parquet", "pictures", "report", "csv", "out")


def settings_of(options: Mapping[str, Any]) -> list[FleetSettings]:
    """Return what the options ask to simulate, one entry a policy. Raises click.UsageError."""
    if given := [f"--{key}" for key in _NOT_FOR_FLEETS if options[key] is not None]:
        raise click.UsageError(f"{given[0]} does not go with --autoscale; --summary does")
    try:
        p95_ms = parse_duration(options["boot_p95"])
        median_ms = p95_ms * 5 // 8
        if options["boot_median"]:
            median_ms = parse_duration(options["boot_median"])
        idle_ms = parse_duration(options["idle"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not 0 < median_ms <= p95_ms:
        raise click.UsageError("--boot-median is longer than nothing and at most --boot-p95")
    names = [name.strip() for name in (options["compare"] or FleetPolicy.BOOKINGS).split(",")]
    try:
        policies = [FleetPolicy(name) for name in names]
    except ValueError as error:
        known = ", ".join(FleetPolicy)
        raise click.UsageError(f"{error}; with --autoscale, --compare names {known}") from None
    if len(set(policies)) < len(policies):
        raise click.UsageError("--compare names each policy once")
    return [
        FleetSettings(
            policy,
            boot_p95_ms=p95_ms,
            boot_median_ms=median_ms,
            failed_ppm=round(options["failed_boots"] * 10_000),
            idle_ms=idle_ms,
            price_micros=round(options["price"] * 1_000_000),
            launches_per_minute=options["launches"],
            keeps_booked=options["keep_booked"],
        )
        for policy in policies
    ]


class FleetReplay(Replay):
    """A trace on fleets."""

    def run_fleets(
        self, fleets: Sequence[FleetSettings], words: PolicyWords, outputs: Outputs
    ) -> None:
        """Simulate each fleet; write the figures if wanted; show them side by side."""
        trace = self.read()
        if trace.site is None:
            raise Invalid([Violation("site", "NO_SITE", "give --nodes or --site")], "NO_SITE")
        if any(len(node.capacity) != 1 or node.capacity[0][0] for node in trace.site.nodes):
            violation = Violation("site", "BAD_SITE", "the nodes of a fleet have one capacity each")
            raise Invalid([violation], "BAD_SITE")
        found = {
            fleet.policy.value: self._simulated(fleet, words, trace.workload, trace.site)
            for fleet in fleets
        }
        if outputs.summary is not None:
            outputs.write_summary(
                {
                    "workload": trace.workload.name,
                    "seed": self._options["seed"],
                    "planned": words.described(),
                    "fleets": {name: each.as_json() for name, each in found.items()},
                }
            )
        if not self._options["quiet"]:
            click.echo(_text(found, self._facts(trace.workload, trace.site, [words])))

    def _simulated(
        self, fleet: FleetSettings, words: PolicyWords, workload: Workload, site: Site
    ) -> FleetFigures:
        seed = self._options["seed"]
        shown = not self._options["quiet"]
        with Bar(fleet.policy.value, len(workload), shown=shown) as progress:
            run = FleetSimulation(
                workload, site, words.bundle(seed), fleet, seed, progress=progress
            )
            run.run()
        return figures_of(run)


def _text(found: Mapping[str, FleetFigures], facts: Sequence[tuple[str, str]]) -> str:
    told = "  ".join(f"{name} {value}" for name, value in facts if value)
    sides = [columns(each) for each in found.values()]
    rows = [(name, *(side[place] for side in sides)) for place, name in enumerate(ROWS)]
    return f"{told}\n\n{aligned(('', *found), rows)}"
