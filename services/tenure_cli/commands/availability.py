"""`tenure availability`: when capacity is free."""

from __future__ import annotations

import click

from tenure.slottable.v1 import slottable_pb2 as spb
from tenure_cli.connection import Connection, run
from tenure_cli.heat import heat_map
from tenure_cli.leases import pairs
from tenure_cli.output import as_dict, output_option, print_json, print_table
from tenure_cli.times import local_now, parse_duration, parse_instant, show_instant
from tenure_core.resources import ResourceVector
from tenure_runtime.rpc.wire import bare, to_duration, to_interval, to_millis, to_timestamp


@click.command()
@click.option("--pool", default="default", show_default=True)
@click.option("--amounts", default="cpu=1", show_default=True, help="Amounts a slot.")
@click.option("-n", "--nodes", default=1, show_default=True, help="Slots wanted at once.")
@click.option("--time", "duration", default="10m", show_default=True, help="For how long.")
@click.option("--from", "start", default="now", show_default=True, help="Begin of the view.")
@click.option("--for", "span", default="24h", show_default=True, help="Length of the view.")
@click.option("--spread", is_flag=True, help="Each slot on a node of its own.")
@click.option("--on", multiple=True, help="KEY=VALUE that a node must have.")
@click.option("--heat", is_flag=True, help="As a map of days and hours; see --for.")
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
    heat: bool,
    on: tuple[str, ...],
) -> None:
    """Show when how many slots are free, and the earliest start of what is wanted."""
    try:
        vector = ResourceVector.parse(amounts)
        begins = round(parse_instant(start, local_now()).timestamp() * 1_000)
        length, lasts = parse_duration(span), parse_duration(duration)
        selector = pairs(on, "--on")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    demand = spb.Demand(
        node_count=nodes, amounts=dict(vector), spread=spread, node_selector=selector
    )
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
    windows = [(to_interval(window.interval), window.slot_count) for window in free.windows]
    if heat:
        click.echo("\n".join(heat_map(windows, nodes, now.tzinfo)))
    else:
        print_table(
            ("FROM", "TO", "FREE SLOTS#"),
            [
                (show_instant(span.start, now), show_instant(span.end, now), slots)
                for span, slots in windows
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
