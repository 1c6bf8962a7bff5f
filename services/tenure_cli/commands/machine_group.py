"""`tenure machine group …`: groups of machines that the autoscaler keeps."""

from __future__ import annotations

from typing import Any

import click
from google.protobuf.field_mask_pb2 import FieldMask

from tenure.autoscaler.v1 import autoscaler_pb2 as spb
from tenure.autoscaler.v1 import machine_pb2 as mpb
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.leases import show_amounts
from tenure_cli.output import (
    Decorated,
    as_dict,
    output_option,
    print_facts,
    print_json,
    print_messages,
    print_table,
)
from tenure_cli.times import parse_duration, show_duration
from tenure_core.resources import ResourceVector
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration

PROVIDER_HELP = "What makes the machines; `process`: agents on this computer; `observe`: nothing."


@click.group(name="group")
def group() -> None:
    """Show and change the groups of machines that are kept for what is booked and queued."""


def _full(name: str) -> str:
    return name if "/" in name else f"groups/{name}"


def read_amounts(text: str) -> dict[str, int]:
    """Return the amounts in an option."""
    try:
        return dict(ResourceVector.parse(text).items())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _span(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _show(found: mpb.Group, output: str) -> None:
    if output == "json":
        print_json(as_dict(found))
        return
    print_facts(
        [
            ("group", bare(found.name)),
            ("pool", bare(found.pool)),
            ("provider", found.provider),
            ("size", f"{found.size_min} to {found.size_max}"),
            ("machine", show_amounts(found.amounts)),
            ("boot", show_duration(span_to_millis(found.boot_duration))),
            ("idle", show_duration(span_to_millis(found.idle_duration))),
            ("state", _state(found)),
            *_elastic_facts(found),
        ]
    )


def _elastic_facts(found: mpb.Group) -> list[tuple[str, str]]:
    if not found.HasField("elastic"):
        return []
    policy = found.elastic
    lower, upper = (
        show_duration(span_to_millis(each))
        for each in (policy.drain_lower_duration, policy.drain_upper_duration)
    )
    return [("application", policy.application), ("drain time", f"{lower} to {upper}")]


def _state(found: mpb.Group) -> str:
    if found.paused:
        return "paused"
    return "dry run" if found.dry_run else "on"


@group.command(name="list")
@output_option
def list_groups(output: str) -> None:
    """List groups."""

    async def ask(connection: Connection) -> list[mpb.Group]:
        client, stub = await connection.autoscaler()

        async def page(token: str) -> spb.ListGroupsResponse:
            return await client.call(stub.ListGroups, spb.ListGroupsRequest(page_token=token))

        return await all_pages(page, "groups", 100_000)

    found = run(ask)
    if output == "json":
        print_messages(found)
        return
    print_table(
        ("GROUP", "POOL", "PROVIDER", "MIN#", "MAX#", "MACHINE", "STATE"),
        [
            (
                bare(g.name),
                bare(g.pool),
                g.provider,
                g.size_min,
                g.size_max,
                show_amounts(g.amounts),
                _state(g),
            )
            for g in found
        ],
    )


def _size_options(*, required: bool) -> Decorated:
    def decorate(command: Any) -> Any:
        for option in (
            click.option("--min", "size_min", type=click.IntRange(0), help="Fewest machines."),
            click.option(
                "--max", "size_max", type=click.IntRange(0), required=required,
                help="Most machines.",
            ),
            click.option(
                "--machine", "amounts", required=required,
                help="What one machine has, e.g. cpu=2,memory=4Gi.",
            ),
            click.option("--boot", help="How long a machine takes to serve; default 2m."),
            click.option("--idle", help="How long one without work is kept; default 10m."),
            click.option("--dry-run/--act", "dry_run", default=None, help="Only say, or do."),
        ):  # fmt: skip
            command = option(command)
        return command

    return decorate


_ELASTIC = {
    "drain_lower": "Elastic: fewer workers below this drain time of the queue; default 10s.",
    "drain_upper": "Elastic: more workers above it; default 30s.",
    "startup": "Elastic: time until a machine's application reports; default 5m.",
    "transition": "Elastic: time until it runs once told; default 1m.",
    "shutdown": "Elastic: time to end its work once told; default 2m.",
    "interval": "Elastic: silence that makes a machine suspect; default 10s.",
    "in_window": "Elastic: how long fewer must have been enough; default 5m.",
    "in_cooldown": "Elastic: rest after any change of size before workers go; default 5m.",
}


def _elastic_options(command: Any) -> Any:
    for name, text in reversed(_ELASTIC.items()):
        command = click.option(f"--{name.replace('_', '-')}", name, help=text)(command)
    return click.option(
        "--application",
        help="Program of each machine of an elastic group: a master, and workers by its queue.",
    )(command)


def _policy(given: dict[str, Any]) -> mpb.ElasticPolicy | None:
    spans = {name: given.pop(name) for name in _ELASTIC}
    application = given.pop("application")
    if application is None:
        if any(spans.values()):
            raise click.UsageError("these options are for elastic groups: give --application too")
        return None
    policy = mpb.ElasticPolicy(application=application)
    for name, text in spans.items():
        if text:
            getattr(policy, f"{name}_duration").CopyFrom(to_duration(_span(text)))
    return policy


def _filled(message: mpb.Group, given: dict[str, Any]) -> list[str]:
    """Fill in what was given; return the names of the fields."""
    fields = []
    for field in ("size_min", "size_max", "dry_run"):
        if given[field] is not None:
            setattr(message, field, given[field])
            fields.append(field)
    if given["amounts"]:
        message.amounts.update(read_amounts(given["amounts"]))
        fields.append("amounts")
    for option in ("boot", "idle"):
        if given[option]:
            getattr(message, f"{option}_duration").CopyFrom(to_duration(_span(given[option])))
            fields.append(f"{option}_duration")
    return fields


@group.command()
@click.argument("name")
@click.option("--pool", default="default", show_default=True)
@click.option("--provider", default="process", show_default=True, help=PROVIDER_HELP)
@_size_options(required=True)
@_elastic_options
@output_option
def create(name: str, pool: str, provider: str, output: str, **given: Any) -> None:
    """Create a group: machines come for what waits and what is booked, and go again.

    With --application it is elastic: a master, and from --min to --max workers by the time that
    the master's queue takes to drain.
    """
    policy = _policy(given)
    wanted = mpb.Group(
        name=_full(name),
        kind=mpb.Group.KIND_POOL if policy is None else mpb.Group.KIND_ELASTIC,
        pool=pool if "/" in pool else f"pools/{pool}",
        provider=provider,
        elastic=policy,
    )
    _filled(wanted, given)

    async def ask(connection: Connection) -> mpb.Group:
        client, stub = await connection.autoscaler()
        request = spb.CreateGroupRequest(group=wanted, request_id=RandomIds().request_id())
        return (await client.call(stub.CreateGroup, request)).group

    _show(run(ask), output)


@group.command(name="set")
@click.argument("name")
@_size_options(required=False)
@output_option
def change(name: str, output: str, **given: Any) -> None:
    """Change a group."""
    wanted = mpb.Group(name=_full(name))
    fields = _filled(wanted, given)
    if not fields:
        raise click.UsageError("say what to change, for example --max 8")

    async def ask(connection: Connection) -> mpb.Group:
        client, stub = await connection.autoscaler()
        request = spb.UpdateGroupRequest(group=wanted, update_mask=FieldMask(paths=fields))
        return (await client.call(stub.UpdateGroup, request)).group

    _show(run(ask), output)


@group.command()
@click.argument("name")
@output_option
def pause(name: str, output: str) -> None:
    """Have a group observed only: nothing comes and nothing goes."""

    async def ask(connection: Connection) -> mpb.Group:
        client, stub = await connection.autoscaler()
        request = spb.PauseGroupRequest(name=_full(name))
        return (await client.call(stub.PauseGroup, request)).group

    _show(run(ask), output)


@group.command()
@click.argument("name")
@output_option
def resume(name: str, output: str) -> None:
    """Have a paused group acted on again."""

    async def ask(connection: Connection) -> mpb.Group:
        client, stub = await connection.autoscaler()
        request = spb.ResumeGroupRequest(name=_full(name))
        return (await client.call(stub.ResumeGroup, request)).group

    _show(run(ask), output)


@group.command()
@click.argument("name")
def delete(name: str) -> None:
    """Forget a group that has no machines any more."""

    async def ask(connection: Connection) -> None:
        client, stub = await connection.autoscaler()
        await client.call(stub.DeleteGroup, spb.DeleteGroupRequest(name=_full(name)))

    run(ask)
    click.echo(f"{bare(_full(name))} is gone.")
