"""`tenure pool policy …`: how pools are planned."""

from __future__ import annotations

from typing import Any

import click

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_cli.commands.pool_group import full_name, pool, show_fields
from tenure_cli.commands.pool_order import fill_order, order_options
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.output import output_option, print_messages, print_table
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare


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
                _preemption(p),
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
@click.option("--preemption", help="off, suspend, requeue, or one that a package offers.")
@click.option(
    "--placement", help="pack, spread, first, round-robin, greedy, or one that a package offers."
)
@click.option("--admission", help="all, no-advance, or one that a package offers.")
@click.option("--depth", type=int, help="How many waiting leases are looked at in a cycle.")
@order_options
@click.option("--create", "creates", is_flag=True, help="Make a new policy of that name.")
@output_option
def set_policy(  # one option each
    name: str,
    backfilling: str | None,
    preemption: str | None,
    placement: str | None,
    admission: str | None,
    depth: int | None,
    output: str,
    *,
    creates: bool,
    **order: Any,
) -> None:
    """Change a policy, or create one."""
    wanted = ppb.Policy(name=full_name("policies", name))
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
        known = f"PREEMPTION_{preemption.upper()}"
        if known in dict(ppb.Policy.Preemption.items()):
            wanted.preemption = ppb.Policy.Preemption.Value(known)
            paths.append("preemption")
        else:
            wanted.preemption_policy = preemption
            paths.append("preemption_policy")
    paths += fill_order(wanted, order)
    for field, value in (("placement", placement), ("admission", admission), ("depth", depth)):
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

    show_fields(run(ask), output)


def _preemption(policy: ppb.Policy) -> str:
    name = ppb.Policy.Preemption.Name(policy.preemption).removeprefix("PREEMPTION_").lower()
    return policy.preemption_policy or name
