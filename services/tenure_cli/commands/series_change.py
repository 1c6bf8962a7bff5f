"""`tenure series list|show|cancel|update|export`: what became of a series, and changes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli import series as of
from tenure_cli.commands.lease_ask import change_lease
from tenure_cli.commands.lease_group import show_leases
from tenure_cli.commands.series_group import cancel_all, leases_of, series
from tenure_cli.connection import Connection, run
from tenure_cli.failures import ExitWith
from tenure_cli.leases import ENDED, state_name
from tenure_cli.output import output_option, print_json, print_table
from tenure_cli.times import local_now, parse_duration
from tenure_runtime.rpc.wire import bare, to_millis


def _meant(leases: list[lpb.Lease], given: dict[str, Any]) -> list[lpb.Lease]:
    """Return the leases that --only and --from mean. Raises click.UsageError."""
    only, from_ = given.pop("only"), given.pop("from_")
    if only and from_:
        raise click.UsageError("--only and --from exclude one another")
    try:
        day = of.parse_local(only) if only else None
        begin = of.parse_local(from_) if from_ else None
        return of.chosen(leases, day, begin)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _part_options(command: Any) -> Any:
    only = click.option("--only", help="Only that day or local time.")
    return only(click.option("--from", "from_", help="That day or local time and later.")(command))


@series.command("list")
@output_option
def list_(output: str) -> None:
    """Show the series, with how many times of each are still to come."""
    leases = run(lambda c: leases_of(c, ""))
    found: dict[str, list[lpb.Lease]] = {}
    for lease in leases:
        found.setdefault(lease.labels[of.SERIES], []).append(lease)
    lines = [
        {
            "series": name,
            "times": len(each),
            "ahead": sum(lease.state not in ENDED for lease in each),
            "first": of.occurrence_of(each[0]).isoformat(),
            "last": of.occurrence_of(each[-1]).isoformat(),
            "zone": each[0].labels[of.ZONE],
        }
        for name, each in sorted(found.items())
    ]
    if output == "json":
        print_json(lines)
    else:
        columns = ("SERIES", "TIMES#", "AHEAD#", "FIRST", "LAST", "ZONE")
        print_table(columns, [tuple(line.values()) for line in lines])


@series.command()
@click.argument("name")
@_part_options
@output_option
def show(name: str, output: str, **given: Any) -> None:
    """Show the leases of a series."""
    show_leases(_meant(run(lambda c: leases_of(c, name)), given), output)


@series.command()
@click.argument("name")
@_part_options
@click.option("--message", default="", help="Why, for their history.")
@output_option
def cancel(name: str, message: str, output: str, **given: Any) -> None:
    """Give up all of a series, or a part of it."""
    leases = _meant(run(lambda c: leases_of(c, name)), given)
    show_leases(run(lambda c: cancel_all(c, leases, message)), output)


@series.command()
@click.argument("name")
@_part_options
@click.option("--shift", help="Earlier or later by so much: -30m, +1h.")
@click.option("--time", "duration", help="New duration of each.")
@click.option("--nodes", type=int, help="New number of slots of each.")
@click.option("--priority", type=int, help="New priority of each.")
@output_option
def update(name: str, output: str, shift: str | None, **given: Any) -> None:
    """Change all of a series, or a part of it; each time is granted or refused by itself."""
    leases = _meant(run(lambda c: leases_of(c, name)), given)
    by_ms = _shift(shift)
    lines = run(lambda c: _update(c, [x for x in leases if x.state not in ENDED], by_ms, given))
    if output == "json":
        print_json(lines)
    else:
        columns = ("LEASE", "STATE", "CHANGE", "WHY")
        print_table(columns, [tuple(line.values()) for line in lines])
    if any(line["change"] == "refused" for line in lines):
        raise ExitWith(4)


def _shift(text: str | None) -> int:
    if not text:
        return 0
    sign = -1 if text.startswith("-") else 1
    try:
        return sign * parse_duration(text.lstrip("+-"))
    except ValueError as error:
        raise click.UsageError(str(error)) from None


async def _update(
    connection: Connection, leases: list[lpb.Lease], by_ms: int, given: dict[str, Any]
) -> list[dict[str, str]]:
    lines = []
    for lease in leases:
        start = to_millis(lease.terms.advance.start_time) + by_ms if by_ms else None
        updated = await change_lease(connection, lease.name, start_ms=start, **given)
        change = updated.pending_change
        granted = change.verdict == lpb.PendingChange.VERDICT_GRANTED
        said = "granted" if granted or not updated.HasField("pending_change") else "refused"
        if change.verdict == lpb.PendingChange.VERDICT_UNSPECIFIED and said == "refused":
            said = "undecided"
        lines.append(
            {
                "lease": bare(updated.name),
                "state": state_name(updated.state),
                "change": said,
                "why": change.message,
            }
        )
    return lines


@series.command()
@click.argument("name")
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Where to.")
def export(name: str, path: Path | None) -> None:
    """Write a series as an iCalendar file."""
    from tenure_cli import series_ical

    leases = run(lambda c: leases_of(c, name))
    if not leases:
        raise click.UsageError(f"there is no series {name!r}")
    text = series_ical.write(leases, local_now())
    if path is None:
        click.echo(text, nl=False)
    else:
        path.write_text(text, encoding="utf-8")
