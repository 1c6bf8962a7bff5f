"""The group of `tenure series …`, and what its commands share."""

from __future__ import annotations

from typing import Any

import click

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli import series as of
from tenure_cli.commands.lease_ask import cancel_lease
from tenure_cli.connection import Connection, all_pages
from tenure_cli.leases import ENDED


@click.group()
def series() -> None:
    """Book what recurs, by a rule on a calendar; change, show and give up parts of it."""


async def leases_of(connection: Connection, name: str) -> list[lpb.Lease]:
    """Return the leases of a series in the order of their times; of all series for ""."""
    client, stub = await connection.admission()

    async def page(token: str) -> Any:
        request = apb.ListLeasesRequest(page_size=500, page_token=token)
        if name:
            request.labels[of.SERIES] = name
        return await client.call(stub.ListLeases, request)

    leases = await all_pages(page, "leases", 100_000)
    mine = [lease for lease in leases if of.SERIES in lease.labels]
    return sorted(mine, key=lambda lease: of.occurrence_of(lease).timestamp())


async def cancel_all(
    connection: Connection, leases: list[lpb.Lease], message: str
) -> list[lpb.Lease]:
    """Cancel what has not ended."""
    return [
        lease if lease.state in ENDED else await cancel_lease(connection, lease.name, message)
        for lease in leases
    ]
