"""`tenure slottable …`: how far the slot table is, and whether it adds up."""

from __future__ import annotations

import click

from tenure.slottable.v1 import slottable_pb2 as spb
from tenure_cli.connection import Connection, run
from tenure_cli.failures import ExitWith
from tenure_cli.output import as_dict, output_option, print_facts, print_json, print_table
from tenure_cli.times import local_now, show_instant
from tenure_core.resources import format_quantity
from tenure_runtime.rpc.wire import bare, to_millis


@click.group()
def slottable() -> None:
    """Show how far the slot table is; add up what is held."""


@slottable.command()
@click.option("--pool", default="default", show_default=True)
@output_option
def status(pool: str, output: str) -> None:
    """Show how far the table of a pool is."""

    async def ask(connection: Connection) -> spb.GetTableStatusResponse:
        client, stub = await connection.slottable()
        return await client.call(stub.GetTableStatus, spb.GetTableStatusRequest(pool=pool))

    found = run(ask)
    if output == "json":
        print_json(as_dict(found))
        return
    print_facts(
        [
            ("pool", pool),
            ("revision", found.revision),
            ("epoch", f"{found.epoch} of {found.epoch_holder}" if found.epoch else "none yet"),
            ("nodes", str(found.node_count)),
            ("reservations", str(found.reservation_count)),
        ]
    )


@slottable.command()
@click.option("--pool", default="", help="Only this pool; default: all.")
@output_option
def verify(pool: str, output: str) -> None:
    """Add up what is held, in the database; exit with 1 where it is more than there is."""

    async def ask(connection: Connection) -> spb.VerifyOccupancyResponse:
        client, stub = await connection.slottable()
        request = spb.VerifyOccupancyRequest(pool=pool)
        return await client.call(stub.VerifyOccupancy, request, timeout_s=120)

    found = run(ask)
    if output == "json":
        print_json(as_dict(found))
    elif found.over_commits:
        _print(found)
    else:
        looked = f"{found.reservation_count} reservations on {found.node_count} nodes"
        click.echo(f"Nothing is held twice: {looked} add up to what there is.")
    if found.over_commits:
        raise ExitWith(1)


def _print(found: spb.VerifyOccupancyResponse) -> None:
    now = local_now()
    print_table(
        ("NODE", "RESOURCE", "FROM", "TO", "HELD#", "THERE IS#"),
        [
            (
                bare(each.node),
                each.resource,
                show_instant(to_millis(each.interval.start_time), now),
                show_instant(to_millis(each.interval.end_time), now),
                format_quantity(each.resource, each.held),
                format_quantity(each.resource, each.capacity),
            )
            for each in found.over_commits
        ],
    )
