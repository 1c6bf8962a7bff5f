"""`tenure backup` and `tenure restore`: a suite in one file, and a suite from it."""

from __future__ import annotations

from pathlib import Path

import click

from tenure_cli.commands.up import data_option
from tenure_cli.embedded.backup import Contents, restore_backup, write_backup
from tenure_cli.embedded.layout import default_data_folder
from tenure_cli.output import output_option, print_json
from tenure_cli.times import local_now, show_instant
from tenure_runtime.clocks import SystemClock


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_option
@click.option("--postgres", default="", help="DSN of the database, when `up` was given one.")
@output_option
def backup(file: Path, data: Path | None, postgres: str, output: str) -> None:
    """Write the suite on this machine to FILE: leases, bookings, pools, quotas, keys.

    It may run meanwhile; FILE has everything as it was at one instant. It holds the keys: whoever
    reads it may do everything. Only its owner can, to begin with.
    """
    folder = (data or default_data_folder()).absolute()
    contents = write_backup(folder, file.absolute(), SystemClock(), postgres)
    _say(contents, file, output, f"{folder} is in {file}, as of", "tenure restore")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@data_option
@output_option
def restore(file: Path, data: Path | None, output: str) -> None:
    """Make a suite from FILE, in a folder that is empty or not there yet.

    Its agents begin anew: what ran when FILE was written starts again where its lease allows.
    """
    folder = (data or default_data_folder()).absolute()
    contents = restore_backup(file.absolute(), folder)
    _say(contents, file, output, f"{folder} is restored, as of", "tenure up")


def _say(contents: Contents, file: Path, output: str, what: str, then: str) -> None:
    if output == "json":
        print_json({"file": str(file), "made_ms": contents.made_ms, "tenure": contents.tenure})
    else:
        click.echo(f"{what} {show_instant(contents.made_ms, local_now())}. Next: {then}")
