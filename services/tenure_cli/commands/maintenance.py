"""`tenure maintenance …`: spans in which nodes may not be used, and who has to move for them."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from tenure.slottable.v1 import reservation_pb2 as rpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.type.v1 import work_pb2
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.output import as_dict, output_option, print_json, print_messages, print_table
from tenure_cli.times import local_now, parse_duration, parse_instant, show_instant
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, to_millis, to_timestamp


@click.group()
def maintenance() -> None:
    """Take nodes out of use for a span; show and end such windows."""


@maintenance.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--pool", default="default", show_default=True)
@click.option("--start", default="now", show_default=True, help="+2h, 'tomorrow 09:00', ISO 8601.")
@click.option("--time", "duration", required=True, help="For how long: 30m, 2h.")
@click.option("--message", default="", help="Why, for those whom it concerns.")
@click.option("--dry-run", is_flag=True, help="Only show who would have to move.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def create(
    nodes: tuple[str, ...],
    pool: str,
    start: str,
    duration: str,
    message: str,
    output: str,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Take NODES out of use; what is booked there is placed elsewhere or ends by policy."""
    try:
        begins = round(parse_instant(start, local_now()).timestamp() * 1_000)
        ends = begins + parse_duration(duration)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    window = rpb.MaintenanceWindow(
        pool=pool, nodes=[f"nodes/{bare(node)}" for node in nodes], message=message
    )
    window.interval.start_time.CopyFrom(to_timestamp(begins))
    window.interval.end_time.CopyFrom(to_timestamp(ends))
    preview = run(lambda c: _create(c, window, validate_only=True))
    concerned = preview.displaced_reservations
    if not dry_run and concerned and not yes:
        if not sys.stdin.isatty():
            text = f"{len(concerned)} reservations would have to move; say --yes, or --dry-run"
            raise click.UsageError(text)
        _print_reservations(concerned)
        click.confirm("These would have to move. Go on?", abort=True)
    answer = preview if dry_run else run(lambda c: _create(c, window, validate_only=False))
    if output == "json":
        print_json(as_dict(answer))
        return
    _print_reservations(answer.displaced_reservations)
    if dry_run:
        click.echo(f"{len(concerned)} reservations would have to move; nothing was changed.")
    else:
        click.echo(f"Window {bare(answer.maintenance_window.name)} is set.")


async def _create(
    connection: Connection, window: rpb.MaintenanceWindow, *, validate_only: bool
) -> spb.CreateMaintenanceWindowResponse:
    client, stub = await connection.slottable()
    request = spb.CreateMaintenanceWindowRequest(
        maintenance_window=window,
        request_id=RandomIds().request_id(),
        validate_only=validate_only,
    )
    return await client.call(stub.CreateMaintenanceWindow, request)


def _print_reservations(reservations: Iterable[rpb.Reservation]) -> None:
    now = local_now()
    rows = [
        (
            bare(each.lease),
            bare(each.node),
            work_pb2.ReservationKind.Name(each.kind).removeprefix("RESERVATION_KIND_").lower(),
            show_instant(to_millis(each.interval.start_time), now),
            show_instant(to_millis(each.interval.end_time), now),
        )
        for each in reservations
    ]
    if rows:
        print_table(("LEASE", "NODE", "KIND", "FROM", "TO"), rows)


@maintenance.command(name="list")
@click.option("--pool", default="", help="Only this pool.")
@output_option
def list_windows(pool: str, output: str) -> None:
    """List maintenance windows."""

    async def ask(connection: Connection) -> list[rpb.MaintenanceWindow]:
        client, stub = await connection.slottable()

        async def page(token: str) -> spb.ListMaintenanceWindowsResponse:
            request = spb.ListMaintenanceWindowsRequest(
                pool=pool, page_size=1_000, page_token=token
            )
            return await client.call(stub.ListMaintenanceWindows, request)

        return await all_pages(page, "maintenance_windows", 100_000)

    found = run(ask)
    if output == "json":
        print_messages(found)
        return
    now = local_now()
    print_table(
        ("WINDOW", "POOL", "FROM", "TO", "NODES", "WHY"),
        [
            (
                bare(each.name),
                each.pool,
                show_instant(to_millis(each.interval.start_time), now),
                show_instant(to_millis(each.interval.end_time), now),
                " ".join(map(bare, each.nodes)),
                each.message,
            )
            for each in found
        ],
    )


@maintenance.command()
@click.argument("window")
def end(window: str) -> None:
    """End a window that is on, or forget one to come."""

    async def ask(connection: Connection) -> None:
        client, stub = await connection.slottable()
        name = f"maintenanceWindows/{bare(window)}"
        request = spb.DeleteMaintenanceWindowRequest(name=name)
        await client.call(stub.DeleteMaintenanceWindow, request)

    run(ask)
