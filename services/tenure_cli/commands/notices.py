"""`tenure notices …`: how an owner is told of leases, what was sent, and a test of it."""

from __future__ import annotations

import secrets

import click

from tenure.notices.v1 import notices_pb2 as pb
from tenure_cli.connection import Connection, run
from tenure_cli.output import as_dict, output_option, print_facts, print_json, print_table
from tenure_cli.times import local_now, parse_duration, show_duration, show_instant
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_millis

_KINDS = [name.removeprefix("KIND_").lower() for name in pb.Kind.keys()[1:-1]]
_owner_option = click.option("--owner", default="", help="For operators: whose, instead of yours.")


@click.group()
def notices() -> None:
    """Show and set how you are told of your leases, by webhook and by e-mail; try it."""


@notices.command()
@_owner_option
@output_option
def show(owner: str, output: str) -> None:
    """Show how you are told, what waits, what was delivered and what could not be."""

    async def ask(connection: Connection) -> tuple[pb.Settings, list[pb.Notice]]:
        client, stub = await connection.notices()
        settings = await client.call(stub.GetSettings, pb.GetSettingsRequest(owner=owner))
        listed = await client.call(stub.ListNotices, pb.ListNoticesRequest(owner=owner))
        return settings.settings, list(listed.notices)

    settings, found = run(ask)
    if output == "json":
        shown = [as_dict(notice) for notice in found]
        print_json({"settings": as_dict(settings), "notices": shown})
        return
    _print_settings(settings)
    now = local_now()
    print_table(
        ("WHEN", "KIND", "LEASE", "BY", "STATE", "TRIED#", "ERROR"),
        [
            (
                show_instant(to_millis(each.create_time), now),
                pb.Kind.Name(each.kind).removeprefix("KIND_").lower(),
                bare(each.lease),
                each.channel,
                pb.Notice.State.Name(each.state).removeprefix("STATE_").lower(),
                each.attempts,
                each.error,
            )
            for each in found
        ],
    )


def _print_settings(settings: pb.Settings) -> None:
    kinds = [pb.Kind.Name(kind).removeprefix("KIND_").lower() for kind in settings.kinds]
    print_facts(
        [
            ("webhook", settings.webhook_url or "none"),
            ("email", settings.email or "none"),
            ("kinds", ", ".join(kinds) or "all"),
            ("before an end", show_duration(span_to_millis(settings.ending_lead))),
        ]
    )


@notices.command(name="set")
@click.option("--webhook", help="URL that notices are posted to; '' for none.")
@click.option(
    "--secret",
    envvar="TENURE_WEBHOOK_SECRET",
    help="To sign webhooks with, better in $TENURE_WEBHOOK_SECRET; made and shown once if need be.",
)
@click.option("--email", help="Address that notices are mailed to; '' for none.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice([*_KINDS, "all"]))
@click.option("--before-end", help="How long before a lease ends you are told: 5m.")
@_owner_option
@output_option
def set_settings(
    webhook: str | None,
    secret: str | None,
    email: str | None,
    kinds: tuple[str, ...],
    before_end: str | None,
    owner: str,
    output: str,
) -> None:
    """Say how you are told from now on; what is not given stays as it is."""
    try:
        lead_ms = None if before_end is None else parse_duration(before_end)
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    async def ask(connection: Connection) -> tuple[pb.Settings, str]:
        client, stub = await connection.notices()
        asked = pb.GetSettingsRequest(owner=owner)
        wanted = (await client.call(stub.GetSettings, asked)).settings
        made = "" if secret or wanted.webhook_secret_set or not webhook else secrets.token_hex(32)
        if webhook is not None:
            wanted.webhook_url = webhook
        if email is not None:
            wanted.email = email
        if kinds:
            names = [] if "all" in kinds else kinds
            wanted.kinds[:] = [pb.Kind.Value(f"KIND_{name.upper()}") for name in names]
        if lead_ms is not None:
            wanted.ending_lead.CopyFrom(to_duration(lead_ms))
        request = pb.SetSettingsRequest(settings=wanted, webhook_secret=secret or made, owner=owner)
        return (await client.call(stub.SetSettings, request)).settings, made

    settings, made = run(ask)
    if output == "json":
        print_json({**as_dict(settings), **({"webhook_secret": made} if made else {})})
        return
    _print_settings(settings)
    if made:
        click.echo(f"Webhooks are signed with this secret, which is not shown again: {made}")


@notices.command()
@_owner_option
def test(owner: str) -> None:
    """Send a test notice every way that is set; `tenure notices show` says what became of it."""

    async def ask(connection: Connection) -> str:
        client, stub = await connection.notices()
        answer = await client.call(stub.SendTest, pb.SendTestRequest(owner=owner))
        return str(answer.notice_id)

    click.echo(run(ask))
