"""`tenure queue`: who waits, in order, and for what."""

from __future__ import annotations

import click

from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_cli.connection import Connection, run
from tenure_cli.leases import show_amounts
from tenure_cli.output import as_dict, output_option, print_json, print_table
from tenure_cli.times import local_now, show_duration, show_instant
from tenure_runtime.rpc.wire import bare, span_to_millis, to_millis


@click.command()
@click.option("--pool", default="default", show_default=True)
@click.option("--limit", default=50, show_default=True, help="At most so many from the head.")
@click.option("--predict", is_flag=True, help="Predict every start, not only the promised ones.")
@output_option
def queue(pool: str, limit: int, output: str, *, predict: bool) -> None:
    """Show who waits in a pool, in order, and for what."""
    answer = run(lambda c: _queue(c, pool, limit, predict=predict))
    if output == "json":
        print_json(as_dict(answer))
        return
    now = local_now()
    print_table(
        ("#", "LEASE", "OWNER", "NODES#", "AMOUNTS", "TIME#", "SINCE", "START", "WAITS FOR"),
        [
            (
                entry.position,
                bare(entry.lease),
                entry.owner,
                entry.node_count,
                show_amounts(entry.amounts),
                show_duration(span_to_millis(entry.duration)),
                show_instant(to_millis(entry.create_time), now),
                "~" + show_instant(to_millis(entry.predicted_start_time), now)
                if entry.HasField("predicted_start_time")
                else "",
                entry.message,
            )
            for entry in answer.entries
        ],
    )
    click.echo(f"{answer.total_count} waiting")


async def _queue(
    connection: Connection, pool: str, limit: int, *, predict: bool
) -> spb.GetQueueResponse:
    client, stub = await connection.scheduler()
    name = f"pools/{pool}"
    answer = await client.call(stub.GetQueue, spb.GetQueueRequest(pool=name, limit=limit))
    if predict:
        starts = await client.call(stub.PredictStarts, spb.PredictStartsRequest(pool=name))
        known = {p.lease: p.start_time for p in starts.predictions if p.HasField("start_time")}
        for entry in answer.entries:
            if entry.lease in known:
                entry.predicted_start_time.CopyFrom(known[entry.lease])
    return answer
