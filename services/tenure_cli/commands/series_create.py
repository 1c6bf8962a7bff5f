"""`tenure series create`: books what recurs, one advance lease an occurrence."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure_cli import series as of
from tenure_cli.commands.lease_group import show_leases
from tenure_cli.commands.series_group import cancel_all, leases_of, series
from tenure_cli.connection import Connection, run
from tenure_cli.failures import ExitWith
from tenure_cli.leases import Wanted, lease_options, to_lease
from tenure_cli.output import output_option, plain, print_json, print_table
from tenure_core.recurrence.readings import Doubled, Missing, Note
from tenure_core.recurrence.rule import Rule, expand
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, to_millis, to_timestamp

DECIDED_S: Final = 20.0
ASKED_AT_ONCE: Final = 16
_NOTES: Final = {
    Note.PLAIN: "",
    Note.MOVED: "clocks jump over it: later",
    Note.SKIPPED: "clocks jump over it: left out",
    Note.TWICE: "clocks show it twice",
}


@series.command()
@click.argument("name")
@click.option("--rule", help="RFC 5545: 'FREQ=WEEKLY;BYDAY=TU;COUNT=12'.")
@click.option("--first", help="Local time of the first: 2026-12-08T09:00.")
@click.option("--zone", default="", help="Time zone, as Europe/Berlin; default: yours.")
@click.option("--except", "excepted", multiple=True, help="A day or local time to leave out.")
@click.option(
    "--calendar",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take rule, times, zone and exceptions from an iCalendar file.",
)
@click.option(
    "--missing",
    type=click.Choice([each.value for each in Missing]),
    default=Missing.LATER.value,
    show_default=True,
    help="A time that clocks jump over.",
)
@click.option(
    "--doubled",
    type=click.Choice([each.value for each in Doubled]),
    default=Doubled.FIRST.value,
    show_default=True,
    help="A time that clocks show twice.",
)
@click.option("--all-or-none", is_flag=True, help="Give all up when one cannot be booked.")
@click.option("--dry-run", is_flag=True, help="Only show the times, and which are free.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@lease_options
@click.argument("command", nargs=-1)
@output_option
def create(
    name: str,
    command: tuple[str, ...],
    output: str,
    *,
    all_or_none: bool,
    dry_run: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Book NAME at every time of a rule; COMMAND, after --, is what each runs."""
    rule = _rule(given)
    wanted = to_lease(Wanted(**given), command)
    if wanted.terms.WhichOneof("kind") != "best_effort":
        raise click.UsageError("the rule says when; --start, --deadline and --immediate do not go")
    if len(name) > of.NAME_LENGTH_MAX:
        raise click.UsageError(f"a series' name has at most {of.NAME_LENGTH_MAX} characters")
    occurrences = expand(rule)
    booked = of.bookings(name, rule.zone, occurrences)
    free = run(lambda c: _free(c, wanted, booked))
    if output == "table":
        _preview(booked, free, [each.local for each in occurrences if each.at is None])
    elif dry_run:
        print_json([_as_json(each, is_free) for each, is_free in zip(booked, free, strict=True)])
    if dry_run:
        return
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("say --yes to book without being asked")
        click.confirm(f"Book {len(booked)} times?", abort=True)
    made = run(lambda c: _create(c, name, of.requests(wanted, name, rule.zone, booked)))
    refused = [lease for lease in made if lease.state == lpb.Lease.STATE_REJECTED]
    if refused and all_or_none:
        made = run(lambda c: cancel_all(c, made, "A time of its series could not be booked."))
    show_leases(made, output)
    for lease in refused:
        _say_refused(bare(lease.name), lease.message, lease.reason)
    if refused:
        raise ExitWith(5)


def _preview(booked: list[of.Booking], free: list[bool], left_out: list[datetime]) -> None:
    rows = [
        (each.lease, _shown(each.shown), "yes" if is_free else "no", _NOTES[each.note])
        for each, is_free in zip(booked, free, strict=True)
    ]
    print_table(("LEASE", "TIME", "FREE", "NOTE"), rows)
    for local in left_out:
        click.echo(f"left out: {_shown(local).strip()}, {_NOTES[Note.SKIPPED]}")


def _shown(at: datetime) -> str:
    return f"{at:%a %Y-%m-%d %H:%M %Z}"


def _say_refused(lease: str, message: str, reason: str) -> None:
    click.echo(f"refused: {lease}: {plain(message)} [{reason}]", err=True)


def _rule(given: dict[str, Any]) -> Rule:
    """Return the rule that the options give, and leave the lease's own options."""
    keys = ("rule", "first", "zone", "excepted", "calendar", "missing", "doubled")
    taken = {key: given.pop(key) for key in keys}
    try:
        if taken["calendar"] is not None:
            rule, given["time"] = _of_calendar(taken["calendar"])
        else:
            rule = _of_options(taken)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return replace(rule, missing=Missing(taken["missing"]), doubled=Doubled(taken["doubled"]))


def _of_calendar(path: Path) -> tuple[Rule, str]:
    from tenure_cli import series_ical

    event = series_ical.read(path.read_text(encoding="utf-8"))
    lasts = f"{event.duration.total_seconds():g}s"
    return Rule(event.rule, event.first, event.zone, exceptions=event.exceptions), lasts


def _of_options(given: dict[str, Any]) -> Rule:
    if not given["rule"] or not given["first"]:
        raise ValueError("--rule and --first say when, or --calendar")
    begins = of.parse_local(given["first"])
    if not isinstance(begins, datetime):
        raise ValueError("--first is a time: 2026-12-08T09:00")  # noqa: TRY004  # a person's
    exceptions = frozenset(of.parse_local(each) for each in given["excepted"])
    return Rule(given["rule"], begins, of.zone_of(given["zone"]), exceptions=exceptions)


def _as_json(booking: of.Booking, free: bool) -> dict[str, object]:  # a column
    return {
        "lease": booking.lease,
        "time": booking.shown.isoformat(),
        "note": booking.note.value,
        "free": free,
    }


async def _free(connection: Connection, wanted: lpb.Lease, booked: list[of.Booking]) -> list[bool]:
    """Say for each time whether it is free by what is booked now; promises nothing."""
    client, stub = await connection.slottable()
    demand = spb.Demand(
        node_count=wanted.node_count,
        amounts=wanted.amounts,
        node_selector=wanted.node_selector,
        spread=wanted.spread,
    )
    gate = asyncio.Semaphore(ASKED_AT_ONCE)

    async def is_free(booking: of.Booking) -> bool:
        request = spb.FindEarliestStartRequest(
            pool=wanted.pool or "default", demand=demand, duration=wanted.duration
        )
        request.not_before_time.CopyFrom(to_timestamp(booking.at))
        async with gate:
            answer = await client.call(stub.FindEarliestStart, request)
        return answer.HasField("start_time") and to_millis(answer.start_time) == booking.at

    return list(await asyncio.gather(*map(is_free, booked)))


async def _create(
    connection: Connection, name: str, requests: list[apb.CreateLeaseRequest]
) -> list[lpb.Lease]:
    """Create all at once, and return them once each is booked or refused."""
    client, stub = await connection.admission()
    batch = apb.BatchCreateLeasesRequest(
        requests=requests, request_id=RandomIds().request_id(), all_or_none=True
    )
    answer = await client.call(stub.BatchCreateLeases, batch, timeout_s=60)
    for index, result in enumerate(answer.results):
        if result.reason:
            _say_refused(requests[index].lease_id, result.message, result.reason)
    if any(result.reason for result in answer.results):
        raise ExitWith(4)
    made = {result.lease.name for result in answer.results}
    waiting = {lpb.Lease.STATE_PENDING, lpb.Lease.STATE_QUEUED}
    found: list[lpb.Lease] = []
    for _ in range(round(DECIDED_S / 0.25)):
        found = [lease for lease in await leases_of(connection, name) if lease.name in made]
        if not any(lease.state in waiting for lease in found):
            break
        await asyncio.sleep(0.25)
    return found
