"""`tenure status`: the services, their versions, and who leads."""

from __future__ import annotations

from typing import Any

import click

from tenure_cli.connection import Connection, run
from tenure_cli.embedded.layout import SERVICES
from tenure_cli.failures import ExitWith
from tenure_cli.output import output_option, print_json, print_table
from tenure_core.errors import DomainError, WrongState


@click.command()
@click.option("--pool", default="default", show_default=True)
@output_option
def status(pool: str, output: str) -> None:
    """Show the services, their versions, and who leads. Exit code 7 when one is away."""
    found = run(lambda c: _status(c, pool))
    if output == "json":
        print_json(found)
    else:
        print_table(
            ("SERVICE", "STATE", "ADDRESS", "VERSION", "SCHEMA#", "INSTANCE"),
            [
                (
                    s["service"],
                    s["state"],
                    s["address"],
                    s.get("version", ""),
                    s.get("schema", ""),
                    s.get("instance", ""),
                )
                for s in found["services"]
            ],
        )
        leader = found["leader"]
        if leader:
            click.echo(
                f"pool {pool}: led by {leader['holder'] or 'nobody'} (by {leader['election']}), "
                f"epoch {leader['epoch']}, revision {leader['revision']}, "
                f"{leader['nodes']} nodes, {leader['reservations']} reservations"
            )
    if any(s["state"] != "serving" for s in found["services"]):
        raise ExitWith(7)


async def _status(connection: Connection, pool: str) -> dict[str, Any]:
    services = [await service_status(connection, name) for name in SERVICES]
    return {"services": services, "leader": await _leader(connection, pool)}


async def service_status(connection: Connection, name: str) -> dict[str, Any]:
    """Return where a service is and which program answers there, or that it is away."""
    from importlib import import_module

    known = {"service": name, "address": connection.address(name)}
    messages = import_module(f"tenure.{name}.v1.{name}_pb2")
    try:
        client, stub = await getattr(connection, name)()
    except WrongState as error:  # about TLS: nobody else can be asked, either
        return {**known, "state": "away", "reason": error.reason}
    try:
        request = messages.GetServiceInfoRequest()
        info = (await client.call(stub.GetServiceInfo, request, timeout_s=3, retry=False)).info
    except DomainError as error:
        return {**known, "state": "away", "reason": error.reason}
    return {
        **known,
        "state": "serving",
        "version": info.version,
        "schema": info.schema_version,
        "instance": info.instance,
    }


async def _leader(connection: Connection, pool: str) -> dict[str, Any]:
    from tenure.scheduler.v1 import scheduler_pb2 as spb
    from tenure.slottable.v1 import slottable_pb2 as tpb

    try:
        client, stub = await connection.scheduler()
        request = spb.GetLeaderRequest(pool=f"pools/{pool}")
        leader = await client.call(stub.GetLeader, request, timeout_s=3, retry=False)
        client, table = await connection.slottable()
        asked = tpb.GetTableStatusRequest(pool=pool)
        found = await client.call(table.GetTableStatus, asked, timeout_s=3, retry=False)
    except DomainError:
        return {}
    return {
        "holder": leader.holder,
        "address": leader.address,
        "election": leader.election,
        "epoch": found.epoch,
        "revision": found.revision,
        "nodes": found.node_count,
        "reservations": found.reservation_count,
    }
