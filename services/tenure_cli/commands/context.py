"""`tenure context …`: list, use, add, set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from tenure.client.contexts import Context, Contexts
from tenure_cli.output import output_option, print_json, print_table

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SERVICES = ("admission", "slottable", "scheduler", "registry", "autoscaler")


@click.group()
def context() -> None:
    """Show, choose and set where the services are and as whom to call."""


@context.command(name="list")
@output_option
def list_contexts(output: str) -> None:
    """List the contexts; credentials are not shown."""
    contexts = Contexts.load()
    rows = [
        {
            "name": name,
            "in_use": name == contexts.current,
            "addresses": dict(each.addresses),
            "credential": _kind(each.credential),
        }
        for name, each in sorted(contexts.by_name.items())
    ]
    if output == "json":
        print_json(rows)
        return
    print_table(
        ("", "CONTEXT", "ADMISSION", "CREDENTIAL"),
        [
            (
                "*" if row["in_use"] else "",
                row["name"],
                contexts.by_name[str(row["name"])].addresses.get("admission", ""),
                row["credential"],
            )
            for row in rows
        ],
    )


def _kind(credential: str) -> str:
    if not credential:
        return ""
    return "key" if credential.startswith(("tnr_", "tnk_")) else "token"


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Use the context NAME from now on."""
    Contexts.load().using(name).store()


@context.command()
@click.argument("name")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def add(name: str, folder: Path) -> None:
    """Make the context NAME of a FOLDER that `tenure certificate make` made; it stays there."""
    contexts = Contexts.load()
    credential = contexts.by_name.get(name, Context()).credential
    invited = replace(Context.invited(folder), credential=credential)
    contexts.with_context(name, invited).store()


@context.command(name="set")
@click.argument("name")
@click.option("--address", "addresses", multiple=True, help="SERVICE=HOST:PORT; may be repeated.")
@click.option("--tls-authority", type=FILE, help="Whom to trust (PEM).")
@click.option("--tls-certificate", type=FILE, help="Shown to the services (PEM).")
@click.option("--tls-private-key", type=FILE)
def set_context(name: str, addresses: tuple[str, ...], **files: Path | None) -> None:
    """Make the context NAME, or change what is given of it."""
    given = dict(text.partition("=")[::2] for text in addresses)
    wrong = [service for service in given if service not in SERVICES or not given[service]]
    if wrong:
        raise click.UsageError(f"--address is SERVICE=HOST:PORT, with {', '.join(SERVICES)}")
    contexts = Contexts.load()
    before = contexts.by_name.get(name, Context())
    paths = {field: str(file.absolute()) for field, file in files.items() if file is not None}
    after = replace(before, addresses={**before.addresses, **given}, **paths)
    contexts.with_context(name, after).store()
