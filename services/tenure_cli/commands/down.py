"""`tenure down` and `tenure reset`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import click

from tenure_cli.commands.up import data_option
from tenure_cli.embedded.forgetting import forget
from tenure_cli.embedded.layout import default_data_folder, read_state, suite_runs
from tenure_cli.output import output_option, print_json
from tenure_core.errors import Unavailable, WrongState

STOP_TIMEOUT_S = 660


@click.command()
@data_option
@click.option("--drain", is_flag=True, help="Wait until the leases that run have ended.")
@click.option("--keep", is_flag=True, help="Let them go on for their fence time. The default.")
@output_option
def down(data: Path | None, output: str, *, drain: bool, keep: bool) -> None:
    """Stop the suite on this machine; its state is kept for the next `up`."""
    if drain and keep:
        raise click.UsageError("--drain and --keep exclude one another")
    folder = (data or default_data_folder()).absolute()
    stopped = stop_suite(folder, "drain" if drain else "keep")
    if output == "json":
        print_json({"data": str(folder), "stopped": stopped})
    else:
        click.echo("Tenure is down." if stopped else "Tenure is not running there.")


def stop_suite(folder: Path, wish: str) -> bool:
    """Stop the suite of a folder and wait for its end; False when none runs."""
    state = read_state(folder)
    if not suite_runs(folder):
        return False
    (folder / "down.wish").write_text(wish + "\n", encoding="utf-8")
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while suite_runs(folder):
        if time.monotonic() > deadline:
            raise Unavailable("SUITE_NOT_STOPPED", f"process {state.pid} did not stop in time")
        time.sleep(0.05)  # a command line waits for its own suite
    return True


@click.command()
@data_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def reset(data: Path | None, output: str, *, yes: bool) -> None:
    """Forget everything that a suite on this machine stored."""
    folder = (data or default_data_folder()).absolute()
    read_state(folder)
    if suite_runs(folder):
        raise WrongState("SUITE_RUNS", "the suite runs; stop it first with `tenure down`")
    if not yes and not (
        sys.stdin.isatty() and click.confirm(f"Forget every lease and all state in {folder}?")
    ):
        raise WrongState("NOT_CONFIRMED", "nothing was removed; say --yes to remove it")
    asyncio.run(forget(folder))
    if output == "json":
        print_json({"data": str(folder), "removed": True})
    else:
        click.echo(f"{folder} is gone.")
