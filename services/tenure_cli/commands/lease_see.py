"""`tenure lease get|list|watch|wait|explain|logs`: shows what became of leases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli import leases
from tenure_cli.commands.lease_group import STATES, instant, lease, show, span, state_number
from tenure_cli.commands.logs import stream_logs
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.failures import ExitWith
from tenure_cli.leases import full
from tenure_cli.output import (
    as_dict,
    output_option,
    plain,
    print_json,
    print_messages,
    print_table,
)
from tenure_cli.times import (
    in_zone_of,
    local_now,
    show_instant,
)
from tenure_runtime.rpc.wire import bare, to_duration, to_millis, to_timestamp

WAIT_SLICE_S = 60


@lease.command()
@click.argument("name")
@output_option
def get(name: str, output: str) -> None:
    """Show one lease."""
    show(run(lambda c: get_lease(c, name)), output)


async def get_lease(connection: Connection, name: str) -> lpb.Lease:
    """Return a lease by id or name."""
    client, stub = await connection.admission()
    return (await client.call(stub.GetLease, apb.GetLeaseRequest(name=full(name)))).lease


@lease.command(name="list")
@click.option("--owner", default="", help="Only those of this owner.")
@click.option("--project", default="", help="Only those of this project.")
@click.option("--pool", default="", help="Only those of this pool.")
@click.option("--state", multiple=True, type=click.Choice(STATES), help="Only those in this state.")
@click.option("--label", multiple=True, help="KEY=VALUE; only those with it.")
@click.option("--since", help="Only those created from then on.")
@click.option("--until", help="Only those created before then.")
@click.option("--all", "every", is_flag=True, help="Also those that ended.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="At most so many, newest first.",
)
@output_option
def list_leases(output: str, limit: int, **given: Any) -> None:
    """List leases, newest first."""
    found = run(lambda c: _list(c, limit, **given))
    if output == "json":
        print_messages(found)
    else:
        print_table(leases.COLUMNS, map(leases.row, found))


async def _list(connection: Connection, limit: int, **given: Any) -> list[lpb.Lease]:
    client, stub = await connection.admission()
    states = [state_number(name) for name in given["state"]]
    if not states and not given["every"]:
        numbers = (state_number(name) for name in STATES)
        states = [number for number in numbers if number not in leases.ENDED]
    request = apb.ListLeasesRequest(
        page_size=min(limit, 1_000),
        owner=given["owner"],
        project=given["project"],
        pool=given["pool"],
        states=states,
        labels=dict(text.partition("=")[::2] for text in given["label"]),
    )
    for option, field in (("since", "start_time"), ("until", "end_time")):
        if given[option]:
            at = instant(given[option])
            getattr(request.create_interval, field).CopyFrom(to_timestamp(at))

    async def page(token: str) -> apb.ListLeasesResponse:
        request.page_token = token
        return await client.call(stub.ListLeases, request)

    return await all_pages(page, "leases", limit)


@lease.command()
@click.argument("name", required=False)
@click.option("--owner", default="", help="Only those of this owner.")
@click.option("--pool", default="", help="Only those of this pool.")
@output_option
def watch(name: str | None, owner: str, pool: str, output: str) -> None:
    """Show changes as they happen, until interrupted."""
    run(lambda c: _watch(c, name, owner, pool, output))


async def _watch(
    connection: Connection, name: str | None, owner: str, pool: str, output: str
) -> None:
    client, stub = await connection.admission()
    request = apb.WatchLeasesRequest(owner=owner, pool=pool, name=full(name) if name else "")
    async with client.stream(stub.WatchLeases, request) as changes:
        async for change in changes:
            if not change.HasField("lease"):
                continue
            if output == "json":
                print_json(as_dict(change))
                continue
            found = change.lease
            at = show_instant(to_millis(found.update_time), local_now())
            state = leases.state_name(found.state)
            click.echo(f"{at}  {bare(found.name)}  {state}  {found.reason}  {plain(found.message)}")


@lease.command()
@click.argument("name")
@click.option(
    "--state", multiple=True, type=click.Choice(STATES), help="Until it is in this state."
)
@click.option("--timeout", help="How long at most; default: for ever.")
@output_option
def wait(name: str, state: tuple[str, ...], timeout: str | None, output: str) -> None:
    """Wait until a lease has ended (or is in a state). Exit code 1 when it did not end well."""
    limit_ms = None if timeout is None else span(timeout)
    found, timed_out = run(lambda c: wait_for(c, name, state, limit_ms))
    show(found, output)
    if timed_out:
        raise ExitWith(1)
    if found.state in leases.ENDED and found.state != lpb.Lease.STATE_DONE:
        raise ExitWith(1)


async def wait_for(
    connection: Connection, name: str, states: tuple[str, ...], limit_ms: int | None
) -> tuple[lpb.Lease, bool]:
    """Wait for a lease in slices that no proxy cuts; return it and whether the time was over."""
    client, stub = await connection.admission()
    left_ms = limit_ms
    while True:
        slice_ms = WAIT_SLICE_S * 1_000 if left_ms is None else min(left_ms, WAIT_SLICE_S * 1_000)
        request = apb.WaitLeaseRequest(
            name=full(name),
            states=[state_number(state) for state in states],
            timeout=to_duration(max(slice_ms, 1)),
        )
        answer = await client.call(stub.WaitLease, request, timeout_s=slice_ms / 1_000 + 10)
        if not answer.timed_out:
            return answer.lease, False
        if left_ms is not None:
            left_ms -= slice_ms
            if left_ms <= 0:
                return answer.lease, True


@lease.command()
@click.argument("name")
@output_option
def explain(name: str, output: str) -> None:
    """Say why a lease is where it is, and what would help."""

    async def ask(connection: Connection) -> apb.ExplainLeaseResponse:
        client, stub = await connection.admission()
        return await client.call(stub.ExplainLease, apb.ExplainLeaseRequest(name=full(name)))

    answer = run(ask)
    if output == "json":
        print_json(as_dict(answer))
        return
    now = local_now()
    below = {text for each in answer.obstacles for text in (each.message, each.remedy)}
    below |= {each.message for each in answer.remedies}
    for sentence in answer.sentences:
        if sentence not in below:
            click.echo(plain(in_zone_of(now, sentence)))
    for obstacle in answer.obstacles:
        text = plain(in_zone_of(now, obstacle.message))
        click.echo(f"  waits for: {text} [{obstacle.reason}]")
        if obstacle.remedy:
            click.echo(f"  would help: {plain(in_zone_of(now, obstacle.remedy))}")
    for remedy in answer.remedies:
        click.echo(f"  would help: {plain(in_zone_of(now, remedy.message))}")
    _print_predicates(answer, now)


def _print_predicates(answer: apb.ExplainLeaseResponse, now: datetime) -> None:
    """Print what is asked before the lease may start, and the last answers."""

    def row(each: apb.PredicateResult) -> tuple[str, str, str]:
        known = each.HasField("since_time")
        found = f"no [{each.reason}]" if each.blocks else "yes" if known else "not asked yet"
        since = show_instant(to_millis(each.since_time), now) if known else ""
        name = apb.PredicateResult.Predicate.Name(each.predicate).removeprefix("PREDICATE_")
        return name.replace("_", " ").lower(), found, since

    if answer.predicates:
        print_table(("ASKED", "FULFILLED", "SINCE"), map(row, answer.predicates))


@lease.command()
@click.argument("name")
@click.option(
    "--rank", type=click.IntRange(0, 10_000), default=0, show_default=True, help="Which slot."
)
@click.option(
    "--attempt",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    help="Which attempt; default: the last.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the work ends.")
@click.option("--tail", type=click.IntRange(1, 2**62), help="Only so many bytes before the end.")
@output_option
def logs(
    name: str, rank: int, attempt: int, output: str, *, follow: bool, tail: int | None
) -> None:
    """Show what a lease's work printed."""
    offset = 0 if tail is None else -tail

    async def show_logs(connection: Connection) -> int:
        return await stream_logs(
            connection, name, rank, attempt=attempt, offset=offset, follow=follow, output=output
        )

    run(show_logs)
