"""`tenure pool list|create|set|delete`."""

from __future__ import annotations

from typing import Any

import click

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_cli.commands.pool_group import all_pools, full_name, pool, show_fields
from tenure_cli.commands.pool_order import order_options, order_pool
from tenure_cli.connection import Connection, run
from tenure_cli.output import output_option, print_messages, print_table
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare


@pool.command(name="list")
@output_option
def list_pools(output: str) -> None:
    """List pools."""
    found = run(all_pools)
    if output == "json":
        print_messages(found)
        return
    print_table(
        ("POOL", "POLICY", "STATE", "DESCRIPTION"),
        [
            (bare(p.name), bare(p.policy), "cordoned" if p.cordoned else "open", p.description)
            for p in found
        ],
    )


@pool.command()
@click.argument("name")
@click.option("--policy", default="default", show_default=True)
@click.option("--description", default="")
@output_option
def create(name: str, policy: str, description: str, output: str) -> None:
    """Create a pool."""

    async def ask(connection: Connection) -> ppb.Pool:
        client, stub = await connection.scheduler()
        wanted = ppb.Pool(
            name=full_name("pools", name),
            policy=full_name("policies", policy),
            description=description,
        )
        request = spb.CreatePoolRequest(pool=wanted, request_id=RandomIds().request_id())
        return (await client.call(stub.CreatePool, request)).pool

    show_fields(run(ask), output)


@pool.command(name="set")
@click.argument("name")
@click.option("--policy")
@click.option("--description")
@click.option("--cordoned/--open", default=None, help="Whether it takes no new leases.")
@order_options
@output_option
def set_pool(  # one option each
    name: str,
    policy: str | None,
    description: str | None,
    output: str,
    *,
    cordoned: bool | None,
    **order: Any,
) -> None:
    """Change a pool.

    The options of the order change its policy, or give it one of its own where others share it.
    """
    if policy is not None and any(order.values()):
        raise click.UsageError("--policy goes without the options of an order")

    async def ask(connection: Connection) -> ppb.Pool:
        nonlocal policy
        client, stub = await connection.scheduler()
        if any(order.values()):
            policy = await order_pool(connection, name, order)
        request = spb.UpdatePoolRequest(pool=ppb.Pool(name=full_name("pools", name)))
        if policy is not None:
            request.pool.policy = full_name("policies", policy)
            request.update_mask.paths.append("policy")
        if description is not None:
            request.pool.description = description
            request.update_mask.paths.append("description")
        if cordoned is not None:
            request.pool.cordoned = cordoned
            request.update_mask.paths.append("cordoned")
        return (await client.call(stub.UpdatePool, request)).pool

    show_fields(run(ask), output)


@pool.command()
@click.argument("name")
def delete(name: str) -> None:
    """Forget a pool that has no nodes and no leases."""

    async def ask(connection: Connection) -> None:
        client, stub = await connection.scheduler()
        await client.call(stub.DeletePool, spb.DeletePoolRequest(name=full_name("pools", name)))

    run(ask)
