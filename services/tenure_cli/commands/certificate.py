"""`tenure certificate make`: a certificate for a person, by the authority of the local suite."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from tenure.client.contexts import INVITATION
from tenure_cli.commands.up import data_option
from tenure_cli.embedded.layout import SERVICES, TLS, default_data_folder, read_state
from tenure_cli.times import local_now, show_instant
from tenure_core.errors import WrongState
from tenure_core.timebase import DAY_MS
from tenure_runtime.clocks import SystemClock

PEOPLE = ("user", "project-admin", "domain-admin", "operator")


@click.group()
def certificate() -> None:
    """Make certificates for people, by the authority of the suite on this machine."""


@certificate.command()
@click.argument("name")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--role", type=click.Choice(PEOPLE), default="user", show_default=True)
@click.option("--days", type=click.IntRange(1, 365), default=90, show_default=True)
@data_option
def make(name: str, out: Path, role: str, days: int, data: Path | None) -> None:
    """Make a certificate and its private key for NAME, in a folder for `tenure context add`.

    It opens a connection to the suite and nothing more: who calls is said by the key or token.
    Hand the folder over by a way that nobody reads along; nothing of it is kept.
    """
    from tenure_runtime.embedded.authority import CertificateCabinet, read_certificate, span_of
    from tenure_runtime.embedded.authority_plan import CertificateTerms
    from tenure_runtime.rpc.identity import Role, write_private
    from tenure_runtime.rpc.peer import Peer, is_name

    if not is_name(name):
        raise click.BadParameter("a name is lower-case letters, digits, '.' and '-'")
    folder = (data or default_data_folder()).absolute()
    state = read_state(folder)
    if state.plaintext or not (folder / TLS / "authority").is_dir():
        raise WrongState("NO_AUTHORITY", f"the suite in {folder} speaks plain text")
    terms = dataclasses.replace(CertificateTerms(), certificate_ms=days * DAY_MS)
    cabinet = CertificateCabinet(folder / TLS, terms)
    try:
        files = cabinet.hand_out(Peer(Role(role), name), out.absolute(), SystemClock().now_ms())
    except FileExistsError as error:
        raise WrongState("CERTIFICATE_EXISTS", f"{error}: nothing was written") from None
    assert files.authority and files.certificate and files.private_key
    invitation = {
        "addresses": {service: state.address(service) for service in SERVICES},
        "tls_authority": files.authority.name,
        "tls_certificate": files.certificate.name,
        "tls_private_key": files.private_key.name,
    }
    write_private(out / INVITATION, json.dumps(invitation, indent=2) + "\n")
    made = read_certificate(files.certificate)
    assert made is not None
    ends = show_instant(span_of(made).end, local_now())
    click.echo(f"{out} is for {name}, until {ends}. Next, there: tenure context add NAME {out}")
