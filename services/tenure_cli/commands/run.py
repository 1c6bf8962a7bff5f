"""`tenure run`: submit, show the output, return the exit code."""

from __future__ import annotations

import asyncio
import signal
import sys
from dataclasses import dataclass
from typing import Any

import click

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_cli import leases
from tenure_cli.commands.lease_ask import cancel_lease
from tenure_cli.commands.lease_see import wait_for
from tenure_cli.commands.logs import stream_logs
from tenure_cli.connection import Connection
from tenure_cli.connection import run as connected
from tenure_cli.failures import INTERRUPTED, ExitWith
from tenure_cli.leases import Wanted, lease_options, to_lease
from tenure_cli.output import as_dict, output_option, plain, print_json_line
from tenure_core.errors import DomainError, NotFound, Unavailable
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare


@click.command(context_settings={"ignore_unknown_options": False})
@lease_options
@click.option("-q", "--quiet", is_flag=True, help="Say nothing of one's own.")
@click.argument("command", nargs=-1, required=True)
@output_option
def run(command: tuple[str, ...], output: str, *, quiet: bool, **given: Any) -> None:
    """Run COMMAND (after --) under a lease; show its output; return its exit code.

    With several slots, the output of all is shown. Ctrl-C asks whether to cancel. As JSON, the
    lease as created, each part of its output and the lease at its end are one line each.
    """
    wanted = to_lease(Wanted(**given), command)
    raise ExitWith(connected(lambda c: _run(c, wanted, Shown(quiet, output))))


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a run: nothing of one's own when quiet, JSON lines when output is json."""

    quiet: bool
    output: str

    def lease(self, lease: lpb.Lease) -> None:
        """Show a lease as one line of JSON, where that is wanted."""
        if self.output == "json":
            print_json_line({"lease": as_dict(lease)})

    def say(self, text: str) -> None:
        """Say something to a person."""
        if not self.quiet and self.output != "json":
            click.echo(text, err=True)


async def _run(connection: Connection, wanted: lpb.Lease, shown: Shown) -> int:
    client, stub = await connection.admission()
    request = apb.CreateLeaseRequest(lease=wanted, request_id=RandomIds().request_id())
    created = (await client.call(stub.CreateLease, request)).lease
    name = bare(created.name)
    shown.lease(created)
    shown.say(f"lease {name}")
    interrupted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
    follow = asyncio.create_task(_follow(connection, created, shown))
    while True:
        stop = asyncio.create_task(interrupted.wait())
        await asyncio.wait({follow, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if follow.done():
            return follow.result()
        interrupted.clear()
        if await asyncio.to_thread(_asks_to_cancel, name):
            await cancel_lease(connection, name, "Interrupted by its owner.")
            follow.cancel()
            await asyncio.gather(follow, return_exceptions=True)
            await wait_for(connection, name, (), 30_000)
            return INTERRUPTED


def _asks_to_cancel(name: str) -> bool:
    """Ask what Ctrl-C means; without a terminal it means to cancel."""
    if not sys.stdin.isatty():
        return True
    click.echo("", err=True)
    answer = click.prompt(
        f"lease {name}: [c]ancel it, [l]eave it running, or go [o]n?",
        type=click.Choice(["c", "l", "o"]),
        default="o",
        err=True,
    )
    if answer == "l":
        click.echo(f"it goes on: tenure lease logs -f {name}", err=True)
        raise ExitWith(INTERRUPTED)
    return bool(answer == "c")


async def _follow(connection: Connection, created: lpb.Lease, shown: Shown) -> int:
    """Show the output of every attempt until the lease has ended; return its exit code."""
    last_shown = 0
    while True:
        found, _ = await wait_for(connection, created.name, ("active", "suspended"), None)
        if found.attempt > last_shown and found.state != lpb.Lease.STATE_REJECTED:
            last_shown = found.attempt
            await _show_attempt(connection, found, shown.output)
        if found.state in leases.ENDED:
            shown.lease(found)
            return _exit_code(found, shown)
        await wait_for(connection, created.name, ("queued",), None)


async def _show_attempt(connection: Connection, found: lpb.Lease, output: str) -> None:
    if found.placements and found.work.command:
        ranks = [placement.rank for placement in found.placements]
        await asyncio.gather(*(_show_rank(connection, found, rank, output) for rank in ranks))


async def _show_rank(connection: Connection, found: lpb.Lease, rank: int, output: str) -> None:
    """Show one slot's output; after a break, go on from where it was."""
    offset = 0
    for _ in range(60):
        try:
            offset += await stream_logs(
                connection,
                found.name,
                rank,
                attempt=found.attempt,
                offset=offset,
                follow=True,
                output=output,
            )
        except Unavailable:
            await asyncio.sleep(0.5)
        except (NotFound, DomainError):
            return
        else:
            return


def _exit_code(found: lpb.Lease, shown: Shown) -> int:
    name = bare(found.name)
    if found.state == lpb.Lease.STATE_DONE and not found.exit_code:
        if found.reason == "TIME_OVER":
            shown.say(f"lease {name}: {plain(found.message)}")
        return 0
    state = leases.state_name(found.state)
    shown.say(f"lease {name} {state}: {plain(found.message)} [{found.reason}]")
    return found.exit_code or 1
