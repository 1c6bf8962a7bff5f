"""`tenure lease create|confirm|update|cancel`: asks for leases and for changes of them."""

from __future__ import annotations

from typing import Any

import click

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli.commands.lease_group import instant, lease, show, show_leases, span
from tenure_cli.commands.lease_see import get_lease
from tenure_cli.connection import Connection, run
from tenure_cli.failures import ExitWith
from tenure_cli.leases import Wanted, full, lease_options, to_lease
from tenure_cli.output import (
    output_option,
    plain,
)
from tenure_cli.times import (
    local_now,
    show_duration,
    show_instant,
)
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import span_to_millis, to_duration, to_millis, to_timestamp


@lease.command()
@lease_options
@click.option("--id", "lease_id", default="", help="Id of the lease; chosen when not given.")
@click.option("--hold", help="Give it up after this time (5m) unless it is confirmed.")
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
@click.argument("names", nargs=-1, required=True)
@output_option
def confirm(names: tuple[str, ...], output: str) -> None:
    """Take leases that were created with --hold: all of them, or none."""
    show_leases(run(lambda c: _confirm(c, names)), output)


async def _confirm(connection: Connection, names: tuple[str, ...]) -> list[lpb.Lease]:
    client, stub = await connection.admission()
    request = apb.ConfirmLeasesRequest(
        names=[full(name) for name in names], request_id=RandomIds().request_id()
    )
    return list((await client.call(stub.ConfirmLeases, request)).leases)


@lease.command()
@click.argument("name")
@click.option("--time", "duration", help="New duration in all.")
@click.option("--start", help="New start.")
@click.option("--nodes", type=int, help="New number of slots.")
@click.option("--priority", type=int, help="New priority.")
@click.option("--wait/--no-wait", "waits", default=True, help="Wait for the leader's verdict.")
@output_option
def update(name: str, output: str, *, waits: bool, **given: Any) -> None:
    """Ask for a change: longer, shorter, another start, more or fewer slots, another priority."""
    start = given.pop("start")
    start_ms = None if start is None else instant(start)
    found = run(lambda c: change_lease(c, name, start_ms=start_ms, waits=waits, **given))
    show(found, output)
    change = found.pending_change
    if change.verdict == lpb.PendingChange.VERDICT_REFUSED:
        click.echo(f"refused: {plain(change.message)} [{change.reason}]", err=True)
        for offer in change.counter_offers:
            click.echo(f"  possible: {_offer(offer)}", err=True)
        raise ExitWith(4)


async def change_lease(
    connection: Connection,
    name: str,
    *,
    start_ms: int | None,
    duration: str | None,
    nodes: int | None,
    priority: int | None,
    waits: bool = True,
) -> lpb.Lease:
    """Ask for a change; return the lease once it is decided. Raises click.UsageError."""
    request = apb.UpdateLeaseRequest(request_id=RandomIds().request_id())
    if duration is not None:
        request.lease.duration.CopyFrom(to_duration(span(duration)))
        request.update_mask.paths.append("duration")
    if start_ms is not None:
        request.lease.terms.advance.start_time.CopyFrom(to_timestamp(start_ms))
        request.update_mask.paths.append("terms")
    if nodes is not None:
        request.lease.node_count = nodes
        request.update_mask.paths.append("node_count")
    if priority is not None:
        request.lease.priority = priority
        request.update_mask.paths.append("priority")
    client, stub = await connection.admission()
    present = await get_lease(connection, name)
    request.lease.name, request.lease.etag = present.name, present.etag
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
