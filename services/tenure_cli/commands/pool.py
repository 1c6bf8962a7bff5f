"""`tenure pool …`: list, create, set, delete; `tenure pool policy …` for how they are planned."""

from __future__ import annotations

import click

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.output import (
    as_dict,
    output_option,
    print_facts,
    print_json,
    print_messages,
    print_table,
)
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare


@click.group()
def pool() -> None:
    """Show and change pools and their policies."""


def _name(kind: str, name: str) -> str:
    return name if "/" in name else f"{kind}/{name}"


async def all_pools(connection: Connection) -> list[ppb.Pool]:
    """Return all pools."""
    client, stub = await connection.scheduler()

    async def page(token: str) -> spb.ListPoolsResponse:
        return await client.call(stub.ListPools, spb.ListPoolsRequest(page_token=token))

    return await all_pages(page, "pools", 100_000)


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


def _show(found: ppb.Pool | ppb.Policy, output: str) -> None:
    if output == "json":
        print_json(as_dict(found))
    else:
        print_facts((name, value) for name, value in as_dict(found).items())


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
            name=_name("pools", name),
            policy=_name("policies", policy),
            description=description,
        )
        request = spb.CreatePoolRequest(pool=wanted, request_id=RandomIds().request_id())
        return (await client.call(stub.CreatePool, request)).pool

    _show(run(ask), output)


@pool.command(name="set")
@click.argument("name")
@click.option("--policy")
@click.option("--description")
@click.option("--cordoned/--open", default=None, help="Whether it takes no new leases.")
@output_option
def set_pool(
    name: str, policy: str | None, description: str | None, output: str, *, cordoned: bool | None
) -> None:
    """Change a pool."""

    async def ask(connection: Connection) -> ppb.Pool:
        client, stub = await connection.scheduler()
        request = spb.UpdatePoolRequest(pool=ppb.Pool(name=_name("pools", name)))
        if policy is not None:
            request.pool.policy = _name("policies", policy)
            request.update_mask.paths.append("policy")
        if description is not None:
            request.pool.description = description
            request.update_mask.paths.append("description")
        if cordoned is not None:
            request.pool.cordoned = cordoned
            request.update_mask.paths.append("cordoned")
        return (await client.call(stub.UpdatePool, request)).pool

    _show(run(ask), output)


@pool.command()
@click.argument("name")
def delete(name: str) -> None:
    """Forget a pool that has no nodes and no leases."""

    async def ask(connection: Connection) -> None:
        client, stub = await connection.scheduler()
        await client.call(stub.DeletePool, spb.DeletePoolRequest(name=_name("pools", name)))

    run(ask)


@pool.group(name="policy")
def policy_group() -> None:
    """Show and change policies."""


@policy_group.command(name="list")
@output_option
def list_policies(output: str) -> None:
    """List policies."""

    async def ask(connection: Connection) -> list[ppb.Policy]:
        client, stub = await connection.scheduler()

        async def page(token: str) -> spb.ListPoliciesResponse:
            return await client.call(stub.ListPolicies, spb.ListPoliciesRequest(page_token=token))

        return await all_pages(page, "policies", 100_000)

    found = run(ask)
    if output == "json":
        print_messages(found)
        return
    print_table(
        ("POLICY", "BACKFILLING", "PREEMPTION", "ORDERING", "PLACEMENT", "DEPTH#"),
        [
            (
                bare(p.name),
                ppb.Policy.Backfilling.Name(p.backfilling).removeprefix("BACKFILLING_").lower(),
                ppb.Policy.Preemption.Name(p.preemption).removeprefix("PREEMPTION_").lower(),
                p.ordering,
                p.placement,
                p.depth,
            )
            for p in found
        ],
    )


@policy_group.command(name="set")
@click.argument("name")
@click.option("--backfilling", help="off, easy, conservative or intermediate:N.")
@click.option("--preemption", type=click.Choice(["off", "suspend", "requeue"]))
@click.option("--ordering", help="fifo, priority or shortest.")
@click.option("--placement", help="pack, spread or first.")
@click.option("--depth", type=int, help="How many waiting leases are looked at in a cycle.")
@click.option("--create", "creates", is_flag=True, help="Make a new policy of that name.")
@output_option
def set_policy(  # one option each
    name: str,
    backfilling: str | None,
    preemption: str | None,
    ordering: str | None,
    placement: str | None,
    depth: int | None,
    output: str,
    *,
    creates: bool,
) -> None:
    """Change a policy, or create one."""
    wanted = ppb.Policy(name=_name("policies", name))
    paths: list[str] = []
    if backfilling is not None:
        kind, _, count = backfilling.partition(":")
        try:
            wanted.backfilling = ppb.Policy.Backfilling.Value(f"BACKFILLING_{kind.upper()}")
            wanted.promise_count = int(count or 1)
        except ValueError:
            text = f"--backfilling is off, easy, conservative or intermediate:N, not {backfilling}"
            raise click.UsageError(text) from None
        paths += ["backfilling", "promise_count"]
    if preemption is not None:
        wanted.preemption = ppb.Policy.Preemption.Value(f"PREEMPTION_{preemption.upper()}")
        paths.append("preemption")
    for field, value in (("ordering", ordering), ("placement", placement), ("depth", depth)):
        if value is not None:
            setattr(wanted, field, value)
            paths.append(field)

    async def ask(connection: Connection) -> ppb.Policy:
        client, stub = await connection.scheduler()
        if creates:
            new = spb.CreatePolicyRequest(policy=wanted, request_id=RandomIds().request_id())
            return (await client.call(stub.CreatePolicy, new)).policy
        request = spb.UpdatePolicyRequest(policy=wanted)
        request.update_mask.paths.extend(paths)
        return (await client.call(stub.UpdatePolicy, request)).policy

    _show(run(ask), output)
