"""Plays the demo of the autoscaler on a suite of its own and says what came of it."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from tenure_cli.connection import Connection
from tenure_cli.demo.fleet import (
    BOOKED_AT_MS,
    MACHINES_MAX,
    SETTINGS,
    FleetWatch,
    check_fleet,
    fleet_leases,
)
from tenure_cli.demo.submitting import AMOUNTS, DemoState, Submitter
from tenure_cli.demo.verifying import Check, read_trails, verify
from tenure_cli.embedded.forgetting import forget
from tenure_cli.embedded.readable import readable
from tenure_cli.embedded.suite import MACHINES, Suite, SuiteOptions
from tenure_core.resources import ResourceVector
from tenure_core.trails import Run
from tenure_runtime.embedded.log_stream import LogStream

LEAD_IN_MS: Final = 1_000


def play_fleet(*, verbose: bool) -> tuple[DemoState, list[Run], list[Check]]:
    """Play the demo; return what became of the leases, what ran, and what was verified."""
    folder = Path(tempfile.mkdtemp(prefix="tenure-demo-"))
    stream = LogStream(sys.stdout if verbose else None, render=readable)
    options = SuiteOptions(
        folder, agents=0, machines=MACHINES_MAX, log_form="json", services=SETTINGS
    )
    state = DemoState(fleet_leases(), 0)
    click.echo("Starting the suite without any agent …")
    try:
        suite = Suite(options, stream)
        watch = asyncio.run(_play(suite, state, folder))
        runs = read_trails(folder / MACHINES, "*/agent/trail.jsonl")
        checks = verify(
            state, folder / "results", runs, suite.machine_names(), ResourceVector(AMOUNTS)
        )
        checks += check_fleet(state, watch.looks)
    finally:
        asyncio.run(forget(folder))
    return state, runs, checks


async def _play(suite: Suite, state: DemoState, folder: Path) -> FleetWatch:
    results = folder / "results"
    results.mkdir()
    began = time.monotonic()
    await suite.start()
    try:
        async with Connection(folder) as connection:
            watch = FleetWatch(connection, state)
            await watch.make_group()
            await watch.look()
            state.began_ms = time.time_ns() // 1_000_000 + LEAD_IN_MS
            click.echo(
                f"It serves after {time.monotonic() - began:.1f} s. {MACHINES_MAX} machines may "
                f"be bought; two slots are booked {BOOKED_AT_MS // 1_000} s ahead, four leases"
                " queue."
            )
            shown = asyncio.create_task(watch.run())
            try:
                await Submitter(connection, state, results).run()
            finally:
                shown.cancel()
                await asyncio.gather(shown, return_exceptions=True)
            await watch.until_gone()
        return watch
    finally:
        await suite.stop()
