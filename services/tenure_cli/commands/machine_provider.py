"""`tenure machine check-provider`: whether a provider of machines keeps to its contract."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tenure_cli.commands.machine_group import read_amounts
from tenure_cli.times import parse_duration
from tenure_core.errors import Unavailable, WrongState
from tenure_core.resources import ResourceVector


@click.command(name="check-provider")
@click.argument("address")
@click.option("--key-file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tls-authority", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--machine", "amounts", default="cpu=1,memory=1Gi", show_default=True)
@click.option("--gone-within", default="1m", show_default=True, help="A machine ends within that.")
def check_provider(
    address: str,
    key_file: Path | None,
    tls_authority: Path | None,
    amounts: str,
    gone_within: str,
) -> None:
    """Try whether the program at ADDRESS (host:port) does what the autoscaler relies on.

    It makes three machines there and ends them; the first thing that does not hold ends the check.
    """
    from tenure_autoscaler.providers.conformance import Conformance, NotConformingError
    from tenure_autoscaler.providers.external import ExternalProvider
    from tenure_autoscaler.providers.port import ProviderRefusedError
    from tenure_runtime.rpc.client import connect
    from tenure_runtime.rpc.transport import TlsFiles

    key = None if key_file is None else key_file.read_text(encoding="utf-8").strip()
    tls = None if tls_authority is None else TlsFiles(authority=tls_authority)
    wanted = ResourceVector(read_amounts(amounts))

    async def check() -> None:
        async with connect(address, api_key=key, tls=tls) as client:
            within_s = parse_duration(gone_within) / 1_000
            provider = ExternalProvider(client)
            async for sentence in Conformance(provider, wanted, gone_within_s=within_s).run():
                click.echo(f"ok  {sentence}")

    try:
        asyncio.run(check())
    except NotConformingError as error:
        raise WrongState("PROVIDER_NOT_CONFORMING", str(error)) from None
    except ProviderRefusedError as error:
        raise Unavailable("PROVIDER_REFUSED", f"{error.code}: {error}") from None
