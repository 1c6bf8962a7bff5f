"""`tenure availability`: when capacity is free."""

from __future__ import annotations

import click

from tenure.slottable.v1 import slottable_pb2 as spb
from tenure_cli.connection import Connection, run
from tenure_cli.output import as_dict, output_option, print_json, print_table
from tenure_cli.times import local_now, parse_duration, parse_instant, show_instant
from tenure_core.resources import ResourceVector
from tenure_runtime.rpc.wire import bare, to_duration, to_millis, to_timestamp


@click.command()
@click.option("--pool", default="default", show_default=True)
@click.option("--amounts", default="cpu=1", show_default=True, help="Amounts a slot.")
@click.option("-n", "--nodes", default=1, show_default=True, help="Slots wanted at once.")
@click.option("--time", "duration", default="10m", show_default=True, help="For how long.")
@click.option("--from", "start", default="now", show_default=True, help="Begin of the view.")
@click.option("--for", "span", default="24h", show_default=True, help="Length of the view.")
@click.option("--spread", is_flag=True, help="Each slot on a node of its own.")
@output_option
def availability(
    pool: str,
    amounts: str,
    nodes: int,
    duration: str,
    start: str,
    span: str,
    output: str,
    *,
    spread: bool,
) -> None:
    """Show when how many slots are free, and the earliest start of what is wanted."""
    try:
        vector = ResourceVector.parse(amounts)
        begins = round(parse_instant(start, local_now()).timestamp() * 1_000)
        length, lasts = parse_duration(span), parse_duration(duration)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    demand = spb.Demand(node_count=nodes, amounts=dict(vector), spread=spread)
    view = spb.GetAvailabilityRequest(pool=pool, demand=demand)
    view.interval.start_time.CopyFrom(to_timestamp(begins))
    view.interval.end_time.CopyFrom(to_timestamp(begins + length))
    first = spb.FindEarliestStartRequest(pool=pool, demand=demand, duration=to_duration(lasts))
    first.not_before_time.CopyFrom(to_timestamp(begins))
    free, earliest = run(lambda c: _ask(c, view, first))
    if output == "json":
        print_json({"availability": as_dict(free), "earliest_start": as_dict(earliest)})
        return
    now = local_now()
    print_table(
        ("FROM", "TO", "FREE SLOTS#"),
        [
            (
                show_instant(to_millis(w.interval.start_time), now),
                show_instant(to_millis(w.interval.end_time), now),
                w.slot_count,
            )
            for w in free.windows
        ],
    )
    if earliest.HasField("start_time"):
        at = show_instant(to_millis(earliest.start_time), now)
        where = ", ".join(map(bare, earliest.nodes))
        click.echo(f"{nodes} slots for {duration}: from {at} on {where}")
    else:
        click.echo(f"{nodes} slots for {duration}: never. {earliest.message}")


async def _ask(
    connection: Connection, view: spb.GetAvailabilityRequest, first: spb.FindEarliestStartRequest
) -> tuple[spb.GetAvailabilityResponse, spb.FindEarliestStartResponse]:
    client, stub = await connection.slottable()
    return (
        await client.call(stub.GetAvailability, view),
        await client.call(stub.FindEarliestStart, first),
    )
