"""`tenure audit …`: who changed what, of all services in one list; each chain verified."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from tenure.audit.v1 import audit_pb2 as pb
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.embedded.layout import SERVICES
from tenure_cli.failures import ExitWith
from tenure_cli.output import as_dict, output_option, plain, print_json, print_table
from tenure_cli.times import local_now, parse_instant, show_instant
from tenure_core.timebase import FOREVER, Interval
from tenure_runtime.rpc.wire import from_interval, to_millis

_NO_NEWS: Final = {"version", "etag", "update_time", "history", "changed_ms", "updated"}
"""What changes with every change, or is long."""
_VALUE_MAX: Final = 40
_service_option = click.option(
    "--service",
    "services",
    multiple=True,
    type=click.Choice(SERVICES),
    help="Only this service's; may be given more than once.",
)


@click.group()
def audit() -> None:
    """Show who changed what, when and from where; verify that none of it was tampered with."""


@audit.command(name="list")
@click.option("--who", default="", help="Only what this key did, by name.")
@click.option("--what", default="", help="Only this resource: leases/a1; or a kind: leases/.")
@click.option("--call", default="", help="Only this call: CancelLease.")
@click.option("--from", "start", help="Only from then on: -2h, 'today 09:00', ISO 8601.")
@click.option("--until", help="Only before then.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 100_000))
@_service_option
@output_option
def list_entries(
    who: str,
    what: str,
    call: str,
    start: str | None,
    until: str | None,
    limit: int,
    services: tuple[str, ...],
    output: str,
) -> None:
    """List changes, newest first. As JSON with the whole resource before and after."""
    wanted = pb.ListEntriesRequest(
        page_size=min(limit, 1_000), caller=who, resource=what, method=call
    )
    if start is not None or until is not None:
        wanted.interval.CopyFrom(from_interval(_span(start, until)))

    async def ask(connection: Connection) -> list[tuple[str, pb.Entry]]:
        found: list[tuple[str, pb.Entry]] = []
        for service in services or SERVICES:
            found += [
                (service, entry) for entry in await _entries(connection, service, wanted, limit)
            ]
        newest = sorted(found, key=lambda each: (to_millis(each[1].time), each[1].sequence))
        return newest[::-1][:limit]

    found = run(ask)
    if output == "json":
        print_json([{"service": service, **_as_dict(entry)} for service, entry in found])
        return
    now = local_now()
    print_table(
        ("WHEN", "SERVICE", "WHO", "CALL", "WHAT", "CHANGE", "FROM"),
        [
            (
                show_instant(to_millis(entry.time), now),
                service,
                entry.caller or "(itself)",
                entry.method,
                entry.resource,
                change_of(entry),
                entry.peer,
            )
            for service, entry in found
        ],
    )


def _span(start: str | None, until: str | None) -> Interval:
    now = local_now()

    def instant(text: str) -> int:
        return round(parse_instant(text, now).timestamp() * 1_000)

    try:
        return Interval(instant(start) if start else 0, instant(until) if until else FOREVER)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


async def _entries(
    connection: Connection, service: str, wanted: pb.ListEntriesRequest, limit: int
) -> list[pb.Entry]:
    client, stub = await connection.audit(service)

    async def page(token: str) -> pb.ListEntriesResponse:
        request = pb.ListEntriesRequest(page_token=token)
        request.MergeFrom(wanted)
        return await client.call(stub.ListEntries, request)

    return await all_pages(page, "entries", limit)


def _as_dict(entry: pb.Entry) -> dict[str, Any]:
    """Return an entry with what was before and after as JSON instead of text of it."""
    shown = as_dict(entry)
    for side in ("before", "after"):
        if side in shown:
            shown[side] = json.loads(shown[side])
    return shown


def change_of(entry: pb.Entry) -> str:
    """Return a change in a few words: what is other than before."""
    if not entry.before:
        return "created"
    if not entry.after:
        return "deleted"
    before, after = json.loads(entry.before), json.loads(entry.after)
    return ", ".join(_differences(before, after)) or "nothing that is shown here"


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after} - _NO_NEWS):
        was, now = before.get(name), after.get(name)
        if was != now:
            yield f"{name}: {_short(was)} → {_short(now)}"


def _short(value: object) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return text if len(text) <= _VALUE_MAX else text[: _VALUE_MAX - 1] + "…"


@dataclass
class _Verified:
    """What became of one service's chain."""

    service: str
    batch: int = 0
    hash: str = ""
    sealed: int = 0
    unsealed: int = 0
    dropped: int = 0
    breaches: tuple[pb.Breach, ...] = ()

    @property
    def note(self) -> str:
        return f"{self.service}={self.batch}:{self.hash}"


@audit.command()
@click.option(
    "--noted",
    multiple=True,
    metavar="SERVICE=BATCH:HASH",
    help="What an earlier verification said, kept elsewhere: shows a chain written anew or cut.",
)
@_service_option
@output_option
def verify(noted: tuple[str, ...], services: tuple[str, ...], output: str) -> None:
    """Recompute each service's chain; exit with 1 and say where it does not fit.

    The last column is what to keep elsewhere, for --noted.
    """
    kept = dict(map(_noted, noted))

    async def ask(connection: Connection) -> list[_Verified]:
        return [
            await _verify(connection, service, kept.get(service, (0, "")))
            for service in services or SERVICES
        ]

    found = run(ask)
    if output == "json":
        print_json([_verified_as_dict(each) for each in found])
    else:
        print_table(
            ("SERVICE", "ENTRIES#", "UNSEALED#", "DROPPED#", "VERDICT", "NOTE"),
            [
                (
                    each.service,
                    each.sealed,
                    each.unsealed,
                    each.dropped,
                    _verdict(each),
                    each.note,
                )
                for each in found
            ],
        )
        for each in found:
            for breach in each.breaches:
                click.echo(f"{each.service}: {plain(breach.message)}")
    if any(each.breaches for each in found):
        raise ExitWith(1)


def _noted(text: str) -> tuple[str, tuple[int, str]]:
    service, equals, rest = text.partition("=")
    batch, colon, digest = rest.partition(":")
    if service not in SERVICES or not equals or not colon or not batch.isdecimal() or not digest:
        raise click.UsageError(f"--noted is SERVICE=BATCH:HASH, not {text!r}")
    return service, (int(batch), digest)


async def _verify(connection: Connection, service: str, noted: tuple[int, str]) -> _Verified:
    client, stub = await connection.audit(service)
    verified = _Verified(service)
    token = ""
    while True:
        request = pb.VerifyTrailRequest(page_token=token, noted_batch=noted[0], noted_hash=noted[1])
        answer = await client.call(stub.VerifyTrail, request, timeout_s=60)
        verified.batch, verified.hash = answer.batch, answer.hash
        verified.sealed += answer.sealed_count
        verified.unsealed = answer.unsealed_count
        verified.dropped = answer.dropped_count
        verified.breaches += tuple(answer.breaches)
        token = answer.next_page_token
        if not token:
            return verified


def _verdict(verified: _Verified) -> str:
    return f"BROKEN ({len(verified.breaches)})" if verified.breaches else "as sealed"


def _verified_as_dict(verified: _Verified) -> dict[str, Any]:
    return {
        "service": verified.service,
        "entries": verified.sealed,
        "unsealed": verified.unsealed,
        "dropped": verified.dropped,
        "note": verified.note,
        "breaches": [as_dict(breach) for breach in verified.breaches],
    }
