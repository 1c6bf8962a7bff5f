"""Empties a local suite before it stops: agents take nothing new until what runs has ended.

Agents stay cordoned in the registry's database, so what a drain cordoned is written down first: a
drain that is cut short (a kill, a power cut) would otherwise leave a suite that runs nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Final

import click

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.registry.v1 import registry_pb2 as gpb
from tenure_cli.connection import Connection
from tenure_core.errors import NotFound, Unavailable
from tenure_core.leases.states import PLACED, LeaseState

TIMEOUT_S: Final = 600
CORDONED: Final = "drain.json"
"""Names of the agents that a drain cordoned and has not uncordoned yet."""

RUNNING: Final = [
    lpb.Lease.State.Value(f"STATE_{state.value}") for state in LeaseState if state in PLACED
]
"""A lease in one of these has work on its nodes, or has had until its agents say otherwise."""


async def count_running(folder: Path) -> int:
    """Return how many leases run, up to 1,000; 0 when nobody can say."""
    try:
        return await _count(folder)
    except (Unavailable, NotFound):
        return 0


async def _count(folder: Path) -> int:
    async with Connection(folder) as connection:
        client, stub = await connection.admission()
        request = apb.ListLeasesRequest(page_size=1_000, states=RUNNING)
        return len((await client.call(stub.ListLeases, request, timeout_s=5)).leases)


async def drain(folder: Path) -> None:
    """Cordon every agent and wait until nothing runs, so that nothing new starts meanwhile."""
    async with Connection(folder) as connection:
        client, stub = await connection.registry()
        agents = (await client.call(stub.ListAgents, gpb.ListAgentsRequest(page_size=5_000))).agents
        ours = [agent.name for agent in agents if not agent.cordoned]
        (folder / CORDONED).write_text(json.dumps(ours), encoding="utf-8")
        for name in ours:
            await client.call(stub.CordonAgent, gpb.CordonAgentRequest(name=name))
    deadline = time.monotonic() + TIMEOUT_S
    while running := await _said(folder):
        if time.monotonic() > deadline:
            click.echo(f"{running} after {TIMEOUT_S} s; they go on for their fence time", err=True)
            break
        click.echo(running, err=True)
        await asyncio.sleep(1)
    await end_drain(folder)


async def _said(folder: Path) -> str:
    """Return what still runs, in words; empty when nothing does."""
    try:
        count = await _count(folder)
    except Unavailable as error:
        # It is being restarted: what runs is unknown, not gone.
        return f"admission does not answer ({error.reason})"
    return f"{count} leases still run" if count else ""


async def end_drain(folder: Path) -> None:
    """Uncordon what a drain cordoned, also one that was cut short before the suite stopped."""
    try:
        names = json.loads((folder / CORDONED).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return
    async with Connection(folder) as connection:
        client, stub = await connection.registry()
        for name in names:
            await client.call(stub.UncordonAgent, gpb.UncordonAgentRequest(name=name))
    (folder / CORDONED).unlink()
