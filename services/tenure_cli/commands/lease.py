"""`tenure lease …`: create, get, list, watch, wait, update, cancel, explain, logs."""

from __future__ import annotations

from typing import Any

import click

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli import leases
from tenure_cli.commands.logs import stream_logs
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.failures import ExitWith
from tenure_cli.leases import Wanted, full, lease_options, to_lease
from tenure_cli.output import (
    as_dict,
    output_option,
    plain,
    print_facts,
    print_json,
    print_messages,
    print_table,
)
from tenure_cli.times import (
    local_now,
    parse_duration,
    parse_instant,
    show_duration,
    show_instant,
)
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_millis, to_timestamp

WAIT_SLICE_S = 60
STATES = [
    state.removeprefix("STATE_").lower()
    for state in lpb.Lease.State.keys()  # noqa: SIM118  # an enum wrapper, not a dict
    if state != "STATE_UNSPECIFIED"
]


def state_number(name: str) -> lpb.Lease.State.ValueType:
    """Return the number of a state as people say it."""
    return lpb.Lease.State.Value(f"STATE_{name.upper()}")


@click.group()
def lease() -> None:
    """Create, list, watch, wait for, change, cancel and explain leases."""


def show(found: lpb.Lease, output: str) -> None:
    """Print one lease."""
    if output == "json":
        print_json(as_dict(found))
    else:
        print_facts(leases.facts(found))


@lease.command()
@lease_options
@click.option("--id", "lease_id", default="", help="Id of the lease; chosen when not given.")
@click.option("--dry-run", is_flag=True, help="Only check.")
@click.argument("command", nargs=-1)
@output_option
def create(
    command: tuple[str, ...], output: str, lease_id: str, *, dry_run: bool, **given: Any
) -> None:
    """Create a lease; COMMAND, after --, is what it runs (none: capacity only)."""
    wanted = to_lease(Wanted(**given), command)
    show(run(lambda c: _create(c, wanted, lease_id, dry_run=dry_run)), output)


async def _create(
    connection: Connection, wanted: lpb.Lease, lease_id: str, *, dry_run: bool
) -> lpb.Lease:
    client, stub = await connection.admission()
    request = apb.CreateLeaseRequest(
        lease=wanted,
        lease_id=lease_id,
        request_id=RandomIds().request_id(),
        validate_only=dry_run,
    )
    return (await client.call(stub.CreateLease, request)).lease


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
@click.option("--limit", default=100, show_default=True, help="At most so many, newest first.")
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
            at = _instant(given[option])
            getattr(request.create_interval, field).CopyFrom(to_timestamp(at))

    async def page(token: str) -> apb.ListLeasesResponse:
        request.page_token = token
        return await client.call(stub.ListLeases, request)

    return await all_pages(page, "leases", limit)


def _instant(text: str) -> int:
    try:
        return round(parse_instant(text, local_now()).timestamp() * 1_000)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


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
    limit_ms = None if timeout is None else parse_duration(timeout)
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
@click.option("--message", default="", help="Why, for its history.")
@output_option
def cancel(name: str, message: str, output: str) -> None:
    """Give a lease up."""
    show(run(lambda c: cancel_lease(c, name, message)), output)


async def cancel_lease(connection: Connection, name: str, message: str) -> lpb.Lease:
    """Cancel a lease by id or name."""
    client, stub = await connection.admission()
    request = apb.CancelLeaseRequest(
        name=full(name), message=message, request_id=RandomIds().request_id()
    )
    return (await client.call(stub.CancelLease, request)).lease


@lease.command()
@click.argument("name")
@click.option("--time", "duration", help="New duration in all.")
@click.option("--start", help="New start.")
@click.option("--nodes", type=int, help="New number of slots.")
@click.option("--priority", type=int, help="New priority.")
@click.option("--wait/--no-wait", "waits", default=True, help="Wait for the leader's verdict.")
@output_option
def update(name: str, output: str, *, waits: bool, **given: Any) -> None:
    """Ask for a change: longer, shorter, another start, another priority."""
    found = run(lambda c: _update(c, name, waits=waits, **given))
    show(found, output)
    change = found.pending_change
    if change.verdict == lpb.PendingChange.VERDICT_REFUSED:
        click.echo(f"refused: {plain(change.message)} [{change.reason}]", err=True)
        for offer in change.counter_offers:
            click.echo(f"  possible: {_offer(offer)}", err=True)
        raise ExitWith(4)


async def _update(connection: Connection, name: str, *, waits: bool, **given: Any) -> lpb.Lease:
    client, stub = await connection.admission()
    present = await get_lease(connection, name)
    request = apb.UpdateLeaseRequest(
        lease=lpb.Lease(name=present.name, etag=present.etag), request_id=RandomIds().request_id()
    )
    if given["duration"] is not None:
        request.lease.duration.CopyFrom(to_duration(parse_duration(given["duration"])))
        request.update_mask.paths.append("duration")
    if given["start"] is not None:
        at = to_timestamp(_instant(given["start"]))
        request.lease.terms.advance.start_time.CopyFrom(at)
        request.update_mask.paths.append("terms")
    if given["nodes"] is not None:
        request.lease.node_count = given["nodes"]
        request.update_mask.paths.append("node_count")
    if given["priority"] is not None:
        request.lease.priority = given["priority"]
        request.update_mask.paths.append("priority")
    updated = (await client.call(stub.UpdateLease, request)).lease
    change = updated.pending_change
    if not waits or not updated.HasField("pending_change") or change.verdict:
        return updated
    decided = apb.WaitLeaseRequest(name=updated.name, until_change_decided=True)
    return (await client.call(stub.WaitLease, decided, timeout_s=70)).lease


def _offer(offer: lpb.CounterOffer) -> str:
    now = local_now()
    parts = []
    if offer.HasField("start_time"):
        parts.append(f"start {show_instant(to_millis(offer.start_time), now)}")
    if offer.HasField("duration"):
        parts.append(f"duration {show_duration(span_to_millis(offer.duration))}")
    if offer.node_count:
        parts.append(f"{offer.node_count} nodes")
    return ", ".join(parts) or "nothing near it"


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
    for sentence in answer.sentences:
        click.echo(plain(sentence))
    for obstacle in answer.obstacles:
        click.echo(f"  waits for: {plain(obstacle.message)} [{obstacle.reason}]")
        if obstacle.remedy:
            click.echo(f"  would help: {plain(obstacle.remedy)}")


@lease.command()
@click.argument("name")
@click.option("--rank", default=0, show_default=True, help="Which slot.")
@click.option("--attempt", default=0, help="Which attempt; default: the last.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the work ends.")
@click.option("--tail", type=int, help="Only so many bytes before the end.")
def logs(name: str, rank: int, attempt: int, *, follow: bool, tail: int | None) -> None:
    """Show what a lease's work printed."""
    offset = 0 if tail is None else -tail
    run(lambda c: stream_logs(c, name, rank, attempt=attempt, offset=offset, follow=follow))
