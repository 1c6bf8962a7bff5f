"""`tenure agent …`: list, get, cordon, drain, uncordon."""

from __future__ import annotations

import asyncio

import click

from tenure.registry.v1 import agent_pb2 as apb
from tenure.registry.v1 import registry_pb2 as gpb
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.leases import show_amounts
from tenure_cli.output import (
    as_dict,
    output_option,
    print_facts,
    print_json,
    print_messages,
    print_table,
)
from tenure_cli.times import local_now, show_instant
from tenure_runtime.rpc.wire import bare, to_millis


@click.group()
def agent() -> None:
    """Show agents; cordon, drain and uncordon them."""


def full(name: str) -> str:
    """Return `agents/{id}` for an id or a name."""
    return name if name.startswith("agents/") else f"agents/{name}"


def state_name(found: apb.Agent) -> str:
    """Return how an agent is, as people say it."""
    state = apb.Agent.State.Name(found.state).removeprefix("STATE_").lower()
    if found.draining:
        return f"{state}, draining"
    return f"{state}, cordoned" if found.cordoned else state


async def agents_of(connection: Connection, pool: str = "") -> list[apb.Agent]:
    """Return the agents of a pool, or all."""
    client, stub = await connection.registry()

    async def page(token: str) -> gpb.ListAgentsResponse:
        request = gpb.ListAgentsRequest(page_size=1_000, page_token=token, pool=pool)
        return await client.call(stub.ListAgents, request)

    return await all_pages(page, "agents", 100_000)


@agent.command(name="list")
@click.option("--pool", default="", help="Only those of this pool.")
@output_option
def list_agents(pool: str, output: str) -> None:
    """List agents."""
    found = run(lambda c: agents_of(c, pool))
    if output == "json":
        print_messages(found)
        return
    now = local_now()
    print_table(
        ("AGENT", "POOL", "STATE", "CAPACITY", "RUNNING#", "LAST BEAT", "VERSION"),
        [
            (
                bare(a.name),
                a.pool,
                state_name(a),
                show_amounts(a.capacity),
                a.load.running_count,
                show_instant(to_millis(a.heartbeat_time), now)
                if a.HasField("heartbeat_time")
                else "",
                a.version,
            )
            for a in found
        ],
    )


@agent.command()
@click.argument("name")
@output_option
def get(name: str, output: str) -> None:
    """Show one agent and what runs on it."""
    _show(run(lambda c: _get(c, name)), output)


async def _get(connection: Connection, name: str) -> apb.Agent:
    client, stub = await connection.registry()
    return (await client.call(stub.GetAgent, gpb.GetAgentRequest(name=full(name)))).agent


def _show(found: apb.Agent, output: str) -> None:
    if output == "json":
        print_json(as_dict(found))
        return
    print_facts(
        [
            ("agent", bare(found.name)),
            ("pool", found.pool),
            ("state", state_name(found)),
            ("capacity", show_amounts(found.capacity)),
            ("attributes", " ".join(f"{k}={v}" for k, v in sorted(found.attributes.items()))),
            ("version", found.version),
            ("incarnation", found.incarnation),
            ("runs", " ".join(f"{bare(a.lease)}.{a.rank}" for a in found.allocations)),
        ]
    )


@agent.command()
@click.argument("name")
@output_option
def cordon(name: str, output: str) -> None:
    """Let an agent accept nothing new."""

    async def ask(connection: Connection) -> apb.Agent:
        client, stub = await connection.registry()
        request = gpb.CordonAgentRequest(name=full(name))
        return (await client.call(stub.CordonAgent, request)).agent

    _show(run(ask), output)


@agent.command()
@click.argument("name")
@click.option("--wait", is_flag=True, help="Until nothing runs there.")
@output_option
def drain(name: str, output: str, *, wait: bool) -> None:
    """Cordon an agent, and have moved away what is there."""

    async def ask(connection: Connection) -> apb.Agent:
        client, stub = await connection.registry()
        request = gpb.DrainAgentRequest(name=full(name))
        found = (await client.call(stub.DrainAgent, request)).agent
        while wait:
            found = await _get(connection, name)
            if not found.allocations:
                break
            click.echo(f"{len(found.allocations)} still there", err=True)
            await asyncio.sleep(1)
        return found

    _show(run(ask), output)


@agent.command()
@click.argument("name")
@output_option
def uncordon(name: str, output: str) -> None:
    """Undo a cordon or a drain."""

    async def ask(connection: Connection) -> apb.Agent:
        client, stub = await connection.registry()
        request = gpb.UncordonAgentRequest(name=full(name))
        return (await client.call(stub.UncordonAgent, request)).agent

    _show(run(ask), output)
