"""`tenure machine …`: machines, and what the autoscaler does or would do."""

from __future__ import annotations

import click

from tenure.autoscaler.v1 import autoscaler_pb2 as spb
from tenure.autoscaler.v1 import machine_pb2 as mpb
from tenure_cli.commands.machine_group import group
from tenure_cli.commands.machine_provider import check_provider
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.leases import show_amounts
from tenure_cli.output import output_option, print_messages, print_table
from tenure_cli.times import local_now, show_instant
from tenure_runtime.rpc.wire import bare, to_millis


@click.group()
def machine() -> None:
    """Show machines, what the autoscaler does and why, and what it keeps."""


machine.add_command(group)
machine.add_command(check_provider)


@machine.command(name="list")
@output_option
def list_machines(output: str) -> None:
    """List machines."""

    async def ask(connection: Connection) -> list[mpb.Machine]:
        client, stub = await connection.autoscaler()

        async def page(token: str) -> spb.ListMachinesResponse:
            request = spb.ListMachinesRequest(page_size=1_000, page_token=token)
            return await client.call(stub.ListMachines, request)

        return await all_pages(page, "machines", 100_000)

    found = run(ask)
    if output == "json":
        print_messages(found)
        return
    print_table(
        ("MACHINE", "GROUP", "POOL", "STATE", "AGENT", "AMOUNTS"),
        [
            (
                bare(m.name),
                bare(m.group),
                m.pool,
                mpb.Machine.State.Name(m.state).removeprefix("STATE_").lower(),
                bare(m.agent),
                show_amounts(m.amounts),
            )
            for m in found
        ],
    )


@machine.command()
@click.option("--limit", default=20, show_default=True)
@click.option("--group", "of_group", default="", help="Only those about this group.")
@output_option
def decisions(limit: int, of_group: str, output: str) -> None:
    """Show what the autoscaler did or would do, and why."""

    async def ask(connection: Connection) -> list[mpb.Decision]:
        client, stub = await connection.autoscaler()
        request = spb.ListDecisionsRequest(
            page_size=limit, subject=f"groups/{bare(of_group)}" if of_group else ""
        )
        return list((await client.call(stub.ListDecisions, request)).decisions)

    found = run(ask)
    if output == "json":
        print_messages(found)
        return
    now = local_now()
    print_table(
        ("WHEN", "ABOUT", "NOW#", "TARGET#", "RULE", "DONE", "WHY"),
        [
            (
                show_instant(to_millis(d.decide_time), now),
                d.subject,
                d.current_count,
                d.target_count,
                d.rule,
                _done(d),
                d.message,
            )
            for d in found
        ],
    )


def _done(decision: mpb.Decision) -> str:
    """Return what came of a decision, by machine."""
    if not decision.enacted:
        return ""
    return ", ".join(f"{name} {word.lower()}" for name, word in sorted(decision.results.items()))
