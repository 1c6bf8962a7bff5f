"""`tenure login`: get a credential, try it, and keep it in a context."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import click

from tenure.admission.v1 import identity_pb2 as pb
from tenure.client.contexts import Context, Contexts
from tenure.client.discovery import Discovery
from tenure_cli.device_login import Invitation, sign_in


@click.command()
@click.option("--issuer", help="OIDC issuer, https://…; a code is shown to type in a browser.")
@click.option("--client-id", default="tenure", show_default=True, help="Known to the issuer.")
@click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--token-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--context", "name", help="Keep it in this context; default: the one in use.")
def login(
    issuer: str | None,
    client_id: str,
    key_file: Path | None,
    token_file: Path | None,
    name: str | None,
) -> None:
    """Sign in and keep the credential (0600): by an issuer, or with a key or token from a file."""
    if sum(way is not None for way in (issuer, key_file, token_file)) != 1:
        raise click.UsageError("give one of --issuer, --key-file, --token-file")
    contexts = Contexts.load()
    name = name or os.environ.get("TENURE_CONTEXT") or contexts.current or "default"
    before = contexts.by_name.get(name, Context())
    if issuer is not None:
        credential = sign_in(issuer, client_id, _invite)
    else:
        file = key_file or token_file
        assert file is not None
        credential = file.read_text(encoding="utf-8").strip()
    caller, roles = asyncio.run(_try(credential, before))
    contexts.with_context(name, replace(before, credential=credential)).store()
    click.echo(f"You are {caller} ({', '.join(roles)}), in context {name}.")


def _invite(invitation: Invitation) -> None:
    click.echo(f"Open {invitation.address} and type {invitation.code}", err=True)


async def _try(credential: str, context: Context) -> tuple[str, list[str]]:
    """Return for whom the credential speaks. Raises as IssueToken."""
    from tenure.admission.v1.identity_pb2_grpc import IdentityServiceStub
    from tenure_runtime.rpc.client import connect

    discovery = Discovery(addresses=context.addresses, tls=context.tls)
    tls = discovery.transport("admission")
    async with connect(discovery.address("admission"), api_key=credential, tls=tls) as client:
        stub = IdentityServiceStub(client.channel)
        answer = await client.call(stub.IssueToken, pb.IssueTokenRequest())
    names = [pb.Role.Name(role).removeprefix("ROLE_").lower() for role in answer.roles]
    return answer.caller, [name.replace("_", " ") for name in names]
