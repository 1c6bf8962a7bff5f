"""`tenure demo`: starts a suite, plays a workload of real processes, verifies it, draws it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from tenure_cli.connection import Connection
from tenure_cli.demo.picture import Table, gantt_svg, page
from tenure_cli.demo.progress import Progress
from tenure_cli.demo.submitting import DemoState, Submitter
from tenure_cli.demo.summary import KindSummary, summarise, utilisation
from tenure_cli.demo.verifying import Check, read_trails, verify
from tenure_cli.demo.workload import TRACE, demo_leases
from tenure_cli.embedded.forgetting import forget
from tenure_cli.embedded.readable import readable
from tenure_cli.embedded.suite import Suite, SuiteOptions
from tenure_cli.failures import ExitWith
from tenure_cli.output import output_option, print_json, print_table
from tenure_core.resources import ResourceVector
from tenure_core.trails import Run
from tenure_runtime.embedded.log_stream import LogStream

SLOTS: Final = 4
LEAD_IN_MS: Final = 1_000
KIND_COLUMNS: Final = (
    "KIND",
    "LEASES#",
    "DONE#",
    "REJECTED#",
    "FAILED#",
    "WAIT MEAN#",
    "WAIT MAX#",
    "SLOWDOWN#",
    "PREEMPTIONS#",
)


@click.command()
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=TRACE,
    help="A workload in Standard Workload Format; default: the one that comes with Tenure.",
)
@click.option("--agents", type=click.IntRange(8, 64), default=8, show_default=True)
@click.option("--leases", type=click.IntRange(1, 1_000), default=60, show_default=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Where the pictures go.",
)
@click.option("--autoscale", is_flag=True, help="Show machines that come and go instead.")
@click.option("--verbose", is_flag=True, help="Show the log of the suite too.")
@output_option
def demo(
    trace: Path, agents: int, leases: int, out: Path, output: str,
    *, autoscale: bool, verbose: bool,
) -> None:  # fmt: skip
    """Show it all: a suite on this machine, a workload of real processes, everything verified.

    With --autoscale there is no machine at first: some come for a queue and before a booking
    begins, and go again.
    """
    # As JSON, only the outcome goes to stdout: what people read meanwhile is for stderr.
    with contextlib.redirect_stdout(sys.stderr if output == "json" else sys.stdout):
        if autoscale:
            kinds, checks = _fleet_demo(out, verbose=verbose)
        else:
            kinds, checks = _demo(trace, agents, leases, out, verbose=verbose)
    if output == "json":
        print_json(
            {
                "kinds": [asdict(kind) for kind in kinds],
                "checks": [asdict(check) for check in checks],
                "pictures": [str(out / "gantt.svg"), str(out / "index.html")],
            }
        )
    if any(check.wrong for check in checks):
        raise ExitWith(1)


def _demo(
    trace: Path, agents: int, leases: int, out: Path, *, verbose: bool
) -> tuple[list[KindSummary], list[Check]]:
    """Play, verify, report and draw; return what it came to."""
    wanted = demo_leases(trace, agents * SLOTS, leases)
    folder = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
    stream = LogStream(sys.stdout if verbose else None, render=readable)
    capacity = f"cpu={SLOTS},memory={SLOTS}Gi"
    options = SuiteOptions(folder, agents=agents, agent_capacity=capacity, log_form="json")
    click.echo(f"Starting the suite with {agents} agents of {capacity} …")
    state = DemoState(wanted, 0)
    try:
        names = asyncio.run(_play(options, stream, state, folder))
        runs = read_trails(folder / "agents")
        checks = verify(state, folder / "results", runs, names, ResourceVector.parse(capacity))
    finally:
        asyncio.run(forget(folder))
    kinds = summarise(state)
    _report(kinds, checks, state, runs, agents * SLOTS)
    _draw(out, kinds, checks, state, runs)
    return kinds, checks


def _fleet_demo(out: Path, *, verbose: bool) -> tuple[list[KindSummary], list[Check]]:
    """Show machines that come and go; return what it came to."""
    from tenure_cli.demo.fleet import MACHINES_MAX
    from tenure_cli.demo.fleet_play import play_fleet

    state, runs, checks = play_fleet(verbose=verbose)
    kinds = [kind for kind in summarise(state) if kind.submitted]
    _report(kinds, checks, state, runs, MACHINES_MAX)
    _draw(out, kinds, checks, state, runs)
    return kinds, checks


async def _play(
    options: SuiteOptions, stream: LogStream, state: DemoState, folder: Path
) -> list[str]:
    """Start the suite, play the workload, stop the suite; return the agents' names."""
    suite = Suite(options, stream)
    results = folder / "results"
    results.mkdir()
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    began = time.monotonic()
    await suite.start()
    try:
        click.echo(
            f"It serves after {time.monotonic() - began:.1f} s; elections by "
            f"{suite.state.election}. Submitting {len(state.leases)} leases …"
        )
        state.began_ms = time.time_ns() // 1_000_000 + LEAD_IN_MS
        async with Connection(folder) as connection:
            progress = Progress(state, suite.agent_names(), SLOTS)
            shown = asyncio.create_task(progress.run())
            try:
                await Submitter(connection, state, results).run()
            finally:
                shown.cancel()
                await asyncio.gather(shown, return_exceptions=True)
        return suite.agent_names()
    finally:
        await suite.stop()


def _kind_row(kind: KindSummary) -> tuple[object, ...]:
    return (
        kind.kind,
        kind.submitted,
        kind.done,
        kind.rejected,
        kind.failed,
        f"{kind.wait_mean / 1_000:.2f} s",
        f"{kind.wait_max / 1_000:.2f} s",
        f"{kind.slowdown:.2f}",
        kind.preemptions,
    )


def _report(
    kinds: list[KindSummary], checks: list[Check], state: DemoState, runs: list[Run], slots: int
) -> None:
    click.echo("")
    print_table(KIND_COLUMNS, map(_kind_row, kinds))
    click.echo(
        f"utilisation {100 * utilisation(runs, slots):.0f} % of {slots} slots; "
        f"{len(state.suspended)} leases were suspended and resumed\n"
    )
    for check in checks:
        mark = "WRONG" if check.wrong else "ok"
        click.echo(f"{mark:>5}  {check.name} ({check.count})")
        for wrong in check.wrong[:10]:
            click.echo(f"       {wrong}")


def _draw(
    out: Path, kinds: list[KindSummary], checks: list[Check], state: DemoState, runs: list[Run]
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    title = "What ran in the demo, from the agents' own trails"
    svg = gantt_svg(runs, {lease.id: lease.kind for lease in state.leases}, title)
    (out / "gantt.svg").write_text(svg, encoding="utf-8")
    columns = [column.rstrip("#").lower() for column in KIND_COLUMNS]
    verdicts = [(c.name, c.count, "; ".join(c.wrong) or "ok") for c in checks]
    tables: list[Table] = [
        ("Leases by kind of terms", columns, [_kind_row(kind) for kind in kinds]),
        ("What was verified", ["check", "of", "verdict"], verdicts),
    ]
    (out / "index.html").write_text(page("Tenure demo", svg, tables), encoding="utf-8")
    click.echo(f"\nPictures: {out / 'gantt.svg'} and {out / 'index.html'}")
