"""`tenure quota …`: set, list, delete; usage under quotas; verify the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import quota_pb2 as qpb
from tenure_cli.commands.quota_weekly import show_weekly, weekly_spans
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.failures import ExitWith
from tenure_cli.output import as_dict, output_option, print_json, print_messages, print_table
from tenure_cli.series import zone_of
from tenure_cli.times import local_now, parse_instant, show_instant
from tenure_core.resources import format_quantity, is_kind, parse_quantity
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, to_millis, to_timestamp


@click.group()
def quota() -> None:
    """Show and set what owners and projects may hold; show what they use."""


def _subject(text: str) -> dict[str, Any]:
    """Return a subject's fields in a message: `owner/ann` or `project/x`."""
    dimension, slash, name = text.partition("/")
    if dimension not in ("owner", "project") or not slash or not name:
        raise click.UsageError(f"a subject is owner/NAME or project/NAME, not {text!r}")
    return {dimension: name}


def _limits(texts: Mapping[str, str | None], others: tuple[str, ...]) -> dict[str, int]:
    given = {kind: text for kind, text in texts.items() if text is not None}
    for text in others:
        kind, equals, amount = text.partition("=")
        if not equals or not is_kind(kind):
            raise ValueError(f"--resource and --budget are KIND=AMOUNT, not {text!r}")
        given[kind] = amount
    return {kind: parse_quantity(kind, text) for kind, text in given.items()}


@quota.command(name="set")
@click.argument("subject")
@click.option("--name", help="Name of the quota; default: the subject, with a hyphen.")
@click.option("--cpu", help="Processors at a time: 16, 0.5, 1500m.")
@click.option("--memory", help="Memory at a time: 64Gi.")
@click.option("--gpu", help="GPUs at a time.")
@click.option("--resource", multiple=True, help="KIND=AMOUNT at a time, for any other kind.")
@click.option("--held", help="Leases that hold capacity at a time.")
@click.option("--waiting", help="Leases that wait; more are refused at creation.")
@click.option("--open", "open_", help="Leases that have not ended; more are refused at creation.")
@click.option("--from", "start", help="Counts from then on only: +2h, 'tomorrow 09:00', ISO 8601.")
@click.option("--until", help="Counts until then only.")
@click.option("--cpu-hours", help="Processors x hours in each period: 100.")
@click.option("--gpu-hours", help="GPUs x hours in each period.")
@click.option("--budget", multiple=True, help="KIND=AMOUNT x hours in each period, any kind.")
@click.option(
    "--per",
    type=click.Choice(["day", "week", "month"]),
    default="month",
    show_default=True,
    help="The period of --cpu-hours, --gpu-hours and --budget, in UTC.",
)
@click.option(
    "--weekly",
    multiple=True,
    metavar="DAYS,HH:MM,LENGTH",
    help="Then only: mon-fri,20:00,10h.",
)
@click.option("--zone", default="", help="By whose clocks --weekly goes; default: yours.")
@click.option("--etag", default="", help="Only if the quota is still the one with this etag.")
@output_option
def set_quota(  # one option each
    subject: str,
    name: str | None,
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    resource: tuple[str, ...],
    held: str | None,
    waiting: str | None,
    open_: str | None,
    start: str | None,
    until: str | None,
    cpu_hours: str | None,
    gpu_hours: str | None,
    budget: tuple[str, ...],
    per: str,
    weekly: tuple[str, ...],
    zone: str,
    etag: str,
    output: str,
) -> None:
    """Set a quota of SUBJECT (owner/NAME or project/NAME), replacing the one of its name.

    One below what is used breaks nothing that runs: what is new waits.
    """
    texts = {
        "cpu": cpu,
        "memory": memory,
        "gpu": gpu,
        "held_leases": held,
        "waiting_leases": waiting,
        "open_leases": open_,
    }
    wanted = qpb.Quota(
        name=_name(name or subject.replace("/", "-", 1)), etag=etag, **_subject(subject)
    )
    now = local_now()
    try:
        wanted.budgets.update(_limits({"cpu": cpu_hours, "gpu": gpu_hours}, budget))
        wanted.limits.update(_limits(texts, resource))
        if wanted.budgets:
            wanted.period = qpb.Quota.Period.Value(f"PERIOD_{per.upper()}")
        for given in weekly:
            wanted.weekly_spans.extend(weekly_spans(given))
        if weekly:
            wanted.time_zone = str(zone_of(zone))
        for field, text in (("start_time", start), ("end_time", until)):
            if text is not None:
                at = round(parse_instant(text, now).timestamp() * 1_000)
                getattr(wanted.valid_interval, field).CopyFrom(to_timestamp(at))
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    if not wanted.limits and not wanted.budgets:
        raise click.UsageError("give a limit: --cpu, --memory, --held, --cpu-hours, …")

    async def ask(connection: Connection) -> calls.SetQuotaResponse:
        client, stub = await connection.admission()
        request = calls.SetQuotaRequest(quota=wanted, request_id=RandomIds().request_id())
        return await client.call(stub.SetQuota, request)

    answer = run(ask)
    if output == "json":
        print_json(as_dict(answer))
        return
    _print_quotas([answer.quota])
    _print_over(answer.usage)


def _name(name: str) -> str:
    return name if name.startswith("quotas/") else f"quotas/{name}"


def _print_quotas(quotas: list[qpb.Quota]) -> None:
    now = local_now()

    def instant(found: qpb.Quota, field: str) -> str:
        span = found.valid_interval
        # The wire has no start as the epoch.
        at = to_millis(getattr(span, field)) if span.HasField(field) else 0  # type: ignore[arg-type]
        return show_instant(at, now) if at else ""

    print_table(
        ("QUOTA", "SUBJECT", "LIMITS", "FROM", "UNTIL"),
        [
            (
                bare(each.name),
                _whose(each),
                " ".join(
                    [
                        *_amounts(each.limits),
                        *_amounts(each.budgets, _per(each.period)),
                        *show_weekly(each),
                    ]
                ),
                instant(each, "start_time"),
                instant(each, "end_time"),
            )
            for each in quotas
        ],
    )


def _amounts(limits: Mapping[str, int], per: str = "") -> list[str]:
    return [f"{kind}={format_quantity(kind, most)}{per}" for kind, most in sorted(limits.items())]


def _per(period: qpb.Quota.Period.ValueType) -> str:
    return "h/" + qpb.Quota.Period.Name(period).removeprefix("PERIOD_").lower()


def _whose(message: qpb.Quota | qpb.Usage) -> str:
    dimension = message.WhichOneof("subject")
    return f"{dimension}/{getattr(message, dimension)}" if dimension else ""


def _print_over(usage: qpb.Usage) -> None:
    """Say what is over its limit and what waits for it."""
    now = local_now()
    for each in usage.resources:
        if each.HasField("over_time"):
            at = show_instant(to_millis(each.over_time), now)
            click.echo(f"{each.resource} is above its limit at {at}; what runs goes on.")
    if usage.held_back_leases:
        names = ", ".join(bare(name) for name in usage.held_back_leases)
        click.echo(f"Waiting for room under a quota: {names}")


@quota.command(name="list")
@click.argument("subject", required=False)
@output_option
def list_quotas(subject: str | None, output: str) -> None:
    """List quotas, all or those of SUBJECT (owner/NAME or project/NAME)."""
    fields = _subject(subject) if subject else {}

    async def ask(connection: Connection) -> list[qpb.Quota]:
        client, stub = await connection.admission()

        async def page(token: str) -> calls.ListQuotasResponse:
            request = calls.ListQuotasRequest(page_token=token, page_size=1_000, **fields)
            return await client.call(stub.ListQuotas, request)

        return await all_pages(page, "quotas", 100_000)

    found = run(ask)
    if output == "json":
        print_messages(found)
    else:
        _print_quotas(found)


@quota.command()
@click.argument("name")
@click.option("--etag", default="", help="Only if the quota is still the one with this etag.")
def delete(name: str, etag: str) -> None:
    """Forget a quota."""

    async def ask(connection: Connection) -> None:
        client, stub = await connection.admission()
        request = calls.DeleteQuotaRequest(
            name=_name(name), etag=etag, request_id=RandomIds().request_id()
        )
        await client.call(stub.DeleteQuota, request)

    run(ask)


@quota.command()
@click.argument("subject", required=False)
@output_option
def usage(subject: str | None, output: str) -> None:
    """Show what SUBJECT (default: you) uses, may use, and what waits for room."""
    fields = _subject(subject) if subject else {}

    async def ask(connection: Connection) -> qpb.Usage:
        client, stub = await connection.admission()
        return (await client.call(stub.GetUsage, calls.GetUsageRequest(**fields))).usage

    found = run(ask)
    if output == "json":
        print_json(as_dict(found))
        return
    click.echo(_whose(found))
    print_table(
        ("RESOURCE", "USED#", "LIMIT#", "PEAK AHEAD#", "QUOTA"),
        [
            (
                each.resource,
                format_quantity(each.resource, each.used),
                format_quantity(each.resource, each.limit) if each.HasField("limit") else "",
                format_quantity(each.resource, each.peak),
                bare(each.quota),
            )
            for each in found.resources
        ],
    )
    now = local_now()
    for each in found.budgets:
        charged, most = (format_quantity(each.resource, n) for n in (each.charged, each.limit))
        until = show_instant(to_millis(each.period_interval.end_time), now)
        text = f"{charged} of {most} {each.resource}-hours are charged until {until}"
        click.echo(f"{text} [{bare(each.quota)}].")
    _print_over(found)


@quota.command()
@output_option
def verify(output: str) -> None:
    """Compare the ledger with the sum over the charged leases; exit with 1 where they differ."""

    async def ask(connection: Connection) -> calls.VerifyUsageResponse:
        client, stub = await connection.admission()
        return await client.call(stub.VerifyUsage, calls.VerifyUsageRequest())

    found = run(ask)
    if output == "json":
        print_json(as_dict(found))
    elif found.drifts:
        print_table(
            ("SUBJECT", "RESOURCE", "LEDGER#", "CHARGED#"),
            [(f"{d.dimension}/{d.name}", d.resource, d.stored, d.recomputed) for d in found.drifts],
        )
    else:
        click.echo("The ledger is the sum over the charged leases.")
    if found.drifts:
        raise ExitWith(1)
