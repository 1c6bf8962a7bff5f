"""Runs what the ancestor's configuration files describe, and shows the runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tenure_cli.simulation.bar import Bar
from tenure_cli.simulation.outputs import Outputs
from tenure_cli.simulation.tables import aligned
from tenure_core.errors import Invalid, Violation
from tenure_sim.annotate import annotated, compact, from_zero, injected
from tenure_sim.compare import Run, cells
from tenure_sim.compare_configurations import Configuration
from tenure_sim.compare_settings import policies_of, site_of, with_overheads
from tenure_sim.convert import SWF, read_bytes, read_trace
from tenure_sim.report_figures import summarise
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import Workload

_COLUMNS = (
    "RUN", "LEASES", "DONE", "REJECTED", "SLOT HOURS", "WAIT MEAN", "MEDIAN", "P95", "LONGEST",
    "BSLD MEAN", "P95", "PREEMPTED", "UTILISATION",
)  # fmt: skip


def run_all(
    configurations: Sequence[Configuration],
    *,
    out: Path | None,
    first: int | None,
    skip_bad: bool,
) -> None:
    """Run each configuration, write its leases and figures below `out`, and show a table."""
    runs: list[Run] = []
    for configuration in configurations:
        workload, site = _read(configuration, first, skip_bad=skip_bad)
        with Bar(configuration.name, len(workload)) as progress:
            result = simulate(workload, site, policies_of(configuration), progress=progress)
        runs.append(Run(configuration.name, result, summarise(result, site)))
        if out is not None:
            folder = out / configuration.name
            Outputs(csv=folder / "leases.csv", summary=folder / "summary.json").write(
                runs[-1:], None
            )
        if configuration.ignored:
            said = ", ".join(configuration.ignored)
            click.echo(f"{configuration.name}: not simulated: {said}", err=True)
    rows = [(run.policy, *cells(run.summary.all), f"{run.summary.utilisation:.2%}") for run in runs]
    click.echo(aligned(_COLUMNS, rows))


def _read(
    configuration: Configuration, first: int | None, *, skip_bad: bool
) -> tuple[Workload, Site]:
    trace = read_trace(
        configuration.trace, site=site_of(configuration), first=first, skip_bad=skip_bad
    )
    workload, site = trace.workload, trace.site
    if site is None:
        raise Invalid([Violation(configuration.name, "NO_SITE", "no resources named")], "NO_SITE")
    if configuration.injection is not None:
        others = read_trace(configuration.injection, site=site, skip_bad=skip_bad).workload
        queue = from_zero(workload) if trace.form == SWF else workload
        workload = injected(queue, others)
    if configuration.annotation is not None:
        text = read_bytes(configuration.annotation)
        workload = annotated(workload, configuration.annotation.name, text)
    return compact(with_overheads(workload, configuration)), site
