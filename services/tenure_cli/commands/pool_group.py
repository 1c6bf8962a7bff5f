"""The group `tenure pool`, and what its commands share."""

from __future__ import annotations

import click

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_cli.connection import Connection, all_pages
from tenure_cli.output import as_dict, print_facts, print_json


@click.group()
def pool() -> None:
    """Show and change pools and their policies."""


def full_name(kind: str, name: str) -> str:
    """Return the name of a thing of a kind, however it was typed."""
    return name if "/" in name else f"{kind}/{name}"


async def all_pools(connection: Connection) -> list[ppb.Pool]:
    """Return all pools."""
    client, stub = await connection.scheduler()

    async def page(token: str) -> spb.ListPoolsResponse:
        return await client.call(stub.ListPools, spb.ListPoolsRequest(page_token=token))

    return await all_pages(page, "pools", 100_000)


def show_fields(found: ppb.Pool | ppb.Policy, output: str) -> None:
    """Print a pool or policy."""
    if output == "json":
        print_json(as_dict(found))
    else:
        print_facts((name, value) for name, value in as_dict(found).items())
