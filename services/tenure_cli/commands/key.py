"""`tenure key …`: create, list, rotate, revoke API keys."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tenure.admission.v1 import identity_pb2 as pb
from tenure_cli.connection import Connection, all_pages, run
from tenure_cli.output import as_dict, output_option, print_json, print_messages, print_table
from tenure_cli.times import local_now, parse_duration, parse_instant, show_instant
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.identity import write_private
from tenure_runtime.rpc.wire import bare, to_duration, to_millis, to_timestamp

ROLES: Final = {
    "member": pb.ROLE_MEMBER,
    "project-admin": pb.ROLE_PROJECT_ADMIN,
    "domain-admin": pb.ROLE_DOMAIN_ADMIN,
    "operator": pb.ROLE_OPERATOR,
}


@click.group()
def key() -> None:
    """Make, list, rotate and withdraw API keys."""


_expires = click.option("--expires", help="From then on it opens nothing: +90d, ISO 8601.")
_file = click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the key there (0600) instead of showing it.",
)


def _set_expiry(message: pb.ApiKey | pb.RotateApiKeyRequest, text: str | None) -> None:
    if text is None:
        return
    try:
        at = parse_instant(text, local_now())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    message.expire_time.CopyFrom(to_timestamp(round(at.timestamp() * 1_000)))


def _hand_over(secret: str, file: Path | None) -> None:
    """Give the key to its owner, this once."""
    if file is not None:
        write_private(file, secret + "\n")
        click.echo(f"The key is in {file}; it is kept nowhere else.", err=True)
    else:
        click.echo(secret)
        click.echo("This is shown once and kept nowhere.", err=True)


@key.command()
@click.argument("caller")
@click.option(
    "--role", "roles", multiple=True, type=click.Choice(list(ROLES)), help="Default: member."
)
@click.option("--read-only", is_flag=True, help="Only calls that change nothing.")
@click.option("--pool", "pools", multiple=True, help="Only leases of this pool; may be repeated.")
@click.option("--project", "projects", multiple=True, help="Only leases of this project.")
@click.option("--administers", multiple=True, help="A project of a project or domain admin.")
@click.option("--description", default="", help="What it is for.")
@_expires
@_file
@output_option
def create(  # one option each
    caller: str,
    roles: tuple[str, ...],
    read_only: bool,
    pools: tuple[str, ...],
    projects: tuple[str, ...],
    administers: tuple[str, ...],
    description: str,
    expires: str | None,
    key_file: Path | None,
    output: str,
) -> None:
    """Make a key that speaks for CALLER, and show it once."""
    wanted = pb.ApiKey(
        caller=caller,
        roles=[ROLES[role] for role in roles or ("member",)],
        scope=pb.KeyScope(read_only=read_only, pools=pools, projects=projects),
        administers=administers,
        description=description,
    )
    _set_expiry(wanted, expires)

    async def ask(connection: Connection) -> pb.CreateApiKeyResponse:
        client, stub = await connection.identity()
        request = pb.CreateApiKeyRequest(api_key=wanted, request_id=RandomIds().request_id())
        return await client.call(stub.CreateApiKey, request)

    answer = run(ask)
    if output == "json":
        print_json(as_dict(answer))
    else:
        click.echo(f"{bare(answer.api_key.name)} speaks for {answer.api_key.caller}.", err=True)
        _hand_over(answer.secret, key_file)


@key.command(name="list")
@click.argument("caller", required=False, default="")
@click.option("--all", "show_ended", is_flag=True, help="Also those withdrawn or expired.")
@output_option
def list_keys(caller: str, show_ended: bool, output: str) -> None:
    """List keys: all that you may see, or those of CALLER."""

    async def ask(connection: Connection) -> list[pb.ApiKey]:
        client, stub = await connection.identity()

        async def page(token: str) -> pb.ListApiKeysResponse:
            request = pb.ListApiKeysRequest(
                page_token=token, page_size=1_000, caller=caller, show_ended=show_ended
            )
            return await client.call(stub.ListApiKeys, request)

        return await all_pages(page, "api_keys", 100_000)

    found = run(ask)
    if output == "json":
        print_messages(found)
        return
    print_table(
        ("KEY", "CALLER", "ROLES", "LIMITED TO", "EXPIRES", "STATE", "DESCRIPTION"),
        [
            (
                bare(each.name),
                each.caller,
                " ".join(_role(role) for role in each.roles),
                _limits(each),
                _instant(each, "expire_time"),
                _state(each),
                each.description,
            )
            for each in found
        ],
    )


def _role(number: pb.Role.ValueType) -> str:
    return pb.Role.Name(number).removeprefix("ROLE_").lower().replace("_", "-")


def _limits(each: pb.ApiKey) -> str:
    parts = ["read-only"] if each.scope.read_only else []
    parts += [f"pool/{name}" for name in each.scope.pools]
    parts += [f"project/{name}" for name in each.scope.projects]
    return " ".join([*parts, *(f"admin of {name}" for name in each.administers)])


def _instant(each: pb.ApiKey, field: str) -> str:
    if not each.HasField(field):  # type: ignore[arg-type]  # a field of the message
        return ""
    return show_instant(to_millis(getattr(each, field)), local_now())


def _state(each: pb.ApiKey) -> str:
    if each.HasField("revoke_time"):
        return f"withdrawn by {each.revoker}"
    return f"replaced by {bare(each.replaced_by)}" if each.replaced_by else ""


@key.command()
@click.argument("name")
@click.option("--overlap", default="1d", show_default=True, help="For how long the key goes on.")
@_expires
@_file
@output_option
def rotate(
    name: str, overlap: str, expires: str | None, key_file: Path | None, output: str
) -> None:
    """Make a key in the place of another, and show it once; the old one goes on for a while."""
    request = pb.RotateApiKeyRequest(name=_full(name), request_id=RandomIds().request_id())
    try:
        request.overlap.CopyFrom(to_duration(parse_duration(overlap)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    _set_expiry(request, expires)

    async def ask(connection: Connection) -> pb.RotateApiKeyResponse:
        client, stub = await connection.identity()
        return await client.call(stub.RotateApiKey, request)

    answer = run(ask)
    if output == "json":
        print_json(as_dict(answer))
        return
    until = _instant(answer.replaced, "expire_time")
    click.echo(f"{bare(answer.api_key.name)} takes its place; the old one ends {until}.", err=True)
    _hand_over(answer.secret, key_file)


@key.command()
@click.argument("name")
def revoke(name: str) -> None:
    """Withdraw a key: at once here, within the lifetime of its tokens everywhere."""

    async def ask(connection: Connection) -> None:
        client, stub = await connection.identity()
        request = pb.RevokeApiKeyRequest(name=_full(name), request_id=RandomIds().request_id())
        await client.call(stub.RevokeApiKey, request)

    run(ask)


def _full(name: str) -> str:
    return f"apiKeys/{bare(name)}"
