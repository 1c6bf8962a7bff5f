"""Reads a trace, runs it under each policy, and writes and shows what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from tenure_cli.simulation.bar import Bar
from tenure_cli.simulation.outputs import Outputs
from tenure_cli.simulation.policy_words import PolicyWords
from tenure_cli.simulation.sites import site_of, slot_of
from tenure_core.errors import Invalid, Violation
from tenure_sim.compare import Run
from tenure_sim.convert import Trace, read_bytes, read_trace
from tenure_sim.report_figures import summarise
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import Workload

VIOLATIONS_MAX: Final = 20


class Replay:
    """One trace with the options of the command line."""

    def __init__(self, path: Path, options: Mapping[str, Any]) -> None:
        self._path = path
        self._options = options

    def run(self, policies: Sequence[PolicyWords], outputs: Outputs) -> None:
        """Simulate under each policy; write what is wanted; show a summary."""
        trace = self.read()
        site = trace.site
        if site is None:
            raise Invalid([Violation("site", "NO_SITE", "give --nodes or --site")], "NO_SITE")
        runs = [self._simulate(words, trace.workload, site) for words in policies]
        facts = self._facts(trace.workload, site, policies)
        subject = None
        if outputs.pictures is not None or outputs.report is not None:
            from tenure_sim.report import Subject

            title = f"{trace.workload.name} under {', '.join(run.policy for run in runs)}"
            subject = Subject(title, site, facts)
        written = outputs.write(runs, subject)
        if self._options["quiet"]:
            return
        from tenure_cli.simulation.tables import summary_text

        click.echo(summary_text(runs, facts))
        if written:
            click.echo("\nwritten: " + " ".join(str(path) for path in written))

    def _simulate(self, words: PolicyWords, workload: Workload, site: Site) -> Run:
        seed = self._options["seed"]
        with Bar(words.name, len(workload), shown=not self._options["quiet"]) as progress:
            result = simulate(workload, site, words.bundle(seed), seed, progress)
        return Run(words.name, result, summarise(result, site))

    def read(self) -> Trace:
        """Return the trace with what is injected and annotated."""
        options = self._options
        slot = slot_of(options["slot"])
        site = site_of(
            options["nodes"],
            options["cpu"],
            options["memory"],
            options["resource"],
            options["site"],
        )
        with _few_violations():
            trace = read_trace(
                self._path,
                site=site,
                slot=slot,
                first=options["first"],
                skip_bad=options["skip_bad"],
            )
            if options["inject"] or options["annotate"]:
                trace = self._changed(trace, slot)
        return trace

    def _changed(self, trace: Trace, slot: Any) -> Trace:  # a vector
        from tenure_sim.annotate import annotated, compact, from_zero, injected
        from tenure_sim.convert import SWF

        options = self._options
        workload = trace.workload
        if options["inject"] and trace.form == SWF:
            workload = from_zero(workload)
        for path in options["inject"]:
            others = read_trace(path, site=trace.site, slot=slot, skip_bad=options["skip_bad"])
            workload = injected(workload, others.workload)
        if options["annotate"] is not None:
            name = options["annotate"].name
            workload = annotated(workload, name, read_bytes(options["annotate"]))
        return replace(trace, workload=compact(workload))

    def _facts(
        self, workload: Workload, site: Site, policies: Sequence[PolicyWords]
    ) -> list[tuple[str, str]]:
        slots = site.slots_of(workload.slot) or 0
        bad = f"{len(workload.bad):,}" if workload.bad else ""
        return [
            ("workload", workload.name),
            ("leases", f"{len(workload):,}"),
            ("nodes", f"{len(site.nodes):,}"),
            ("slots", f"{slots:,}"),
            ("seed", str(self._options["seed"])),
            ("bad lines left out", bad),
            (
                "records without a run or too wide",
                f"{workload.left_out:,}" * bool(workload.left_out),
            ),
            *((words.name, words.described()) for words in policies),
        ]


class _few_violations:  # noqa: N801  # a context manager, used like a function
    """Cuts the list of bad lines short: a broken file may have as many as it has lines."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Invalid) and len(error.violations) > VIOLATIONS_MAX:
            rest = len(error.violations) - VIOLATIONS_MAX
            last = Violation("…", error.violations[-1].reason, f"and {rest:,} more")
            raise Invalid([*error.violations[:VIOLATIONS_MAX], last], error.reason) from None
