"""The options that say in which order a pool's queue goes, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_cli.commands.pool_group import all_pools, full_name
from tenure_cli.connection import Connection
from tenure_cli.times import parse_duration
from tenure_core.policies.ordering_words import WORDS
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, to_duration

Decorated = Callable[..., Any]

_OPTIONS: Final = (
    click.option("--ordering", help=f"Order of the queue: {', '.join(WORDS)}, joined by /."),
    click.option(
        "--weight",
        "weights",
        multiple=True,
        metavar="NAME=N",
        help="Weight of an owner or project.",
    ),
    click.option("--age", help="Whoever waits for longer goes first, whatever the order."),
    click.option("--half-life", help="In which time usage counts half under fair-share."),
)


def order_options(command: Decorated) -> Decorated:
    """Add the options that say in which order a queue goes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def fill_order(policy: ppb.Policy, order: Mapping[str, Any]) -> list[str]:
    """Fill in what the options say of the order; return the fields that they name."""
    paths = []
    if order["ordering"]:
        policy.ordering = order["ordering"]
        paths.append("ordering")
    for each in order["weights"]:
        name, equals, weight = each.partition("=")
        if not equals or not weight.isdigit():
            raise click.UsageError(f"--weight is NAME=N, not {each!r}")
        policy.weights[name] = int(weight)
    if order["weights"]:
        paths.append("weights")
    for option, field in (("age", "age_duration"), ("half_life", "half_life_duration")):
        if order[option]:
            try:
                getattr(policy, field).CopyFrom(to_duration(parse_duration(order[option])))
            except ValueError as error:
                raise click.UsageError(str(error)) from None
            paths.append(field)
    return paths


async def order_pool(connection: Connection, name: str, order: Mapping[str, Any]) -> str:
    """Change the policy of a pool, or make it one of its own where others share it.

    Returns the policy that the pool is to have.
    """
    client, stub = await connection.scheduler()
    wanted = ppb.Policy()
    paths = fill_order(wanted, order)
    pool = full_name("pools", name)
    found = (await client.call(stub.GetPool, spb.GetPoolRequest(name=pool))).pool
    sharing = [each for each in await all_pools(connection) if each.policy == found.policy]
    if len(sharing) == 1:
        wanted.name = found.policy
        request = spb.UpdatePolicyRequest(policy=wanted)
        request.update_mask.paths.extend(paths)
        await client.call(stub.UpdatePolicy, request)
        return found.policy
    shared = spb.GetPolicyRequest(name=found.policy)
    own = (await client.call(stub.GetPolicy, shared)).policy
    if "weights" in paths:
        own.ClearField("weights")
    own.MergeFrom(wanted)
    own.name = f"policies/pool-{bare(pool)}"
    creation = spb.CreatePolicyRequest(policy=own, request_id=RandomIds().request_id())
    await client.call(stub.CreatePolicy, creation)
    return own.name
