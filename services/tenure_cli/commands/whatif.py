"""`tenure whatif`: when would it start, and when under another policy? Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure_cli.connection import Connection, run
from tenure_cli.leases import Wanted, lease_options, show_amounts, to_lease
from tenure_cli.output import as_dict, output_option, print_facts, print_json, print_table
from tenure_cli.simulation.live import LivePool, booked_leases, live_pool
from tenure_cli.simulation.policy_words import (
    POLICY_OPTIONS,
    PolicyWords,
    policy_options,
    words_of,
)
from tenure_cli.times import local_now, show_duration, show_instant
from tenure_core.leases.lease import Lease
from tenure_runtime.rpc.wire import bare, to_millis
from tenure_scheduler.pack import to_policy
from tenure_sim.forward import Forecast, forecast

_SHAPE = frozenset(
    {"nodes", "cpu", "memory", "gpu", "resource", "time", "start", "deadline", "immediate", "on"}
)


@click.command()
@lease_options
@policy_options
@output_option
@click.pass_context
def whatif(ctx: click.Context, /, output: str, **options: Any) -> None:
    """Predict starts in a pool, without changing anything.

    Without a lease to ask about: when every waiting lease starts and why it waits, under the
    pool's policy; with --policy or its like, under another one too, side by side. With one
    (-n, --cpu, --time, …): what would become of a lease that does not exist.
    """
    pool = options["pool"] or "default"
    given = {name for name in options if _is_given(ctx, name)}
    other = {name: options.pop(name) for name in POLICY_OPTIONS}
    if given & _SHAPE:
        if given & set(POLICY_OPTIONS):
            raise click.UsageError("ask about a lease or about a policy, not about both at once")
        _ask_about(Wanted(**options), pool, output)
    elif given & set(POLICY_OPTIONS):
        _under(words_of(**other), pool, output)
    else:
        _predict(pool, output)


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _ask_about(wanted: Wanted, pool: str, output: str) -> None:
    lease = to_lease(wanted, ())
    request = spb.WhatIfRequest(
        pool=f"pools/{pool}",
        node_count=lease.node_count,
        amounts=dict(lease.amounts),
        duration=lease.duration,
        priority=lease.priority,
        node_selector=dict(lease.node_selector),
        spread=lease.spread,
        immediate=lease.terms.HasField("immediate"),
    )
    if lease.terms.HasField("advance"):
        request.advance_start_time.CopyFrom(lease.terms.advance.start_time)
    if lease.terms.HasField("deadline"):
        request.deadline_time.CopyFrom(lease.terms.deadline.deadline_time)

    async def ask(connection: Connection) -> spb.WhatIfResponse:
        client, stub = await connection.scheduler()
        return await client.call(stub.WhatIf, request)

    answer = run(ask)
    if output == "json":
        print_json(as_dict(answer))
        return
    start = ""
    if answer.HasField("start_time"):
        start = show_instant(to_millis(answer.start_time), local_now())
    print_facts(
        [
            ("accepted", "yes" if answer.accepted else "no"),
            ("start", start or "not known"),
            ("nodes", " ".join(map(bare, answer.nodes))),
            ("would preempt", " ".join(map(bare, answer.preempted_leases))),
            ("why", f"{answer.message} [{answer.reason}]" if answer.reason else ""),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Expected:
    """When a lease that does not run yet is expected to start, and why not now."""

    lease: str
    owner: str
    node_count: int
    amounts: Mapping[str, int]
    start: int | None
    reason: str
    message: str
    booked: bool = False


def _predict(pool: str, output: str) -> None:
    expected, as_of = run(lambda connection: _expected(connection, pool))
    if output == "json":
        print_json([asdict(each) for each in expected])
        return
    now = local_now()
    rows = [
        (
            place,
            each.lease,
            each.owner,
            each.node_count,
            show_amounts(each.amounts),
            "not known" if each.start is None else "~" + show_instant(each.start, now),
            "" if each.start is None else show_duration(max(0, each.start - as_of)),
            each.message or each.reason,
        )
        for place, each in enumerate(expected, 1)
    ]
    print_table(("#", "LEASE", "OWNER", "NODES#", "AMOUNTS", "START", "IN#", "WAITS FOR"), rows)
    click.echo(f"{len(rows)} to start")


async def _expected(connection: Connection, pool: str) -> tuple[list[_Expected], int]:
    """Return what is booked ahead, by its start, and then what waits, in queue order."""
    client, stub = await connection.scheduler()
    name = f"pools/{pool}"
    starts = await client.call(stub.PredictStarts, spb.PredictStartsRequest(pool=name))
    queue = await client.call(stub.GetQueue, spb.GetQueueRequest(pool=name, limit=10_000))
    as_of = to_millis(starts.as_of)
    booked = [_booked(entry.lease) for entry in await booked_leases(connection, pool)]
    entries = {entry.lease: entry for entry in queue.entries}
    waiting = []
    for told in starts.predictions:
        entry = entries.get(told.lease, spb.QueueEntry())
        waiting.append(
            _Expected(
                bare(told.lease),
                entry.owner,
                entry.node_count,
                dict(entry.amounts),
                to_millis(told.start_time) if told.HasField("start_time") else None,
                told.reason,
                told.message,
            )
        )
    names = {each.lease for each in waiting}
    booked = [each for each in booked if each.lease not in names]
    booked.sort(key=lambda each: (each.start or as_of, each.lease))
    return [*booked, *waiting], as_of


def _booked(lease: Lease) -> _Expected:
    start = min((each.interval.start for each in lease.placements), default=None)
    spec = lease.spec
    return _Expected(
        lease.id,
        spec.owner,
        spec.node_count,
        dict(spec.amounts),
        start,
        "",
        "its capacity is booked from then on",
        booked=True,
    )


def _under(words: PolicyWords, pool: str, output: str) -> None:
    async def ask(connection: Connection) -> tuple[LivePool, spb.GetPolicyResponse]:
        client, stub = await connection.scheduler()
        named = await client.call(stub.GetPool, spb.GetPoolRequest(name=f"pools/{pool}"))
        request = spb.GetPolicyRequest(name=named.pool.policy)
        policy = await client.call(stub.GetPolicy, request)
        return await live_pool(connection, pool), policy

    live, policy = run(ask)
    present = forecast(live.snapshot, to_policy(policy.policy).bundle())
    other = {each.lease: each for each in forecast(live.snapshot, words.bundle())}
    pairs = [(each, other[each.lease]) for each in present]
    if output == "json":
        print_json([_as_json(now, then) for now, then in pairs])
        return
    name = bare(policy.policy.name)
    _print_pairs(pairs, live, f"UNDER {name}".upper(), f"UNDER {words.name}".upper())


def _print_pairs(
    pairs: Sequence[tuple[Forecast, Forecast]], live: LivePool, first: str, second: str
) -> None:
    now = local_now()
    rows = []
    for before, after in pairs:
        lease = live.leases[before.lease].lease
        rows.append(
            (
                before.lease,
                lease.spec.owner,
                lease.spec.node_count,
                show_amounts(lease.spec.amounts),
                show_instant(before.start, now) if before.start is not None else "never",
                show_instant(after.start, now) if after.start is not None else "never",
                _change(before, after),
                after.message or after.reason or before.message,
            )
        )
    columns = ("LEASE", "OWNER", "NODES#", "AMOUNTS", first, second, "CHANGE#", "WAITS FOR")
    print_table(columns, rows)
    later = sum(_moved(before, after) > 0 for before, after in pairs)
    earlier = sum(_moved(before, after) < 0 for before, after in pairs)
    click.echo(f"{len(pairs)} to start: {earlier} earlier, {later} later")


def _moved(before: Forecast, after: Forecast) -> int:
    if before.start is None or after.start is None:
        return (after.start is None) - (before.start is None)
    return after.start - before.start


def _change(before: Forecast, after: Forecast) -> str:
    if before.start is None or after.start is None or before.start == after.start:
        return ""
    sign = "-" if after.start < before.start else "+"
    return sign + show_duration(abs(after.start - before.start))


def _as_json(before: Forecast, after: Forecast) -> dict[str, object]:
    return {
        "lease": before.lease,
        "start_ms": before.start,
        "other_start_ms": after.start,
        "other_nodes": list(after.nodes),
        "reason": before.reason,
        "other_reason": after.reason,
        "other_message": after.message,
        "other_preemptions": after.preemptions,
    }
