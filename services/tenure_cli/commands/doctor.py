"""`tenure doctor`: looks at everything and says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Awaitable
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import click

from tenure.admission.v1 import admission_pb2 as calls
from tenure.scheduler.v1 import scheduler_pb2 as spb
from tenure.slottable.v1 import slottable_pb2 as tpb
from tenure_cli.certificates import look_at, used_here
from tenure_cli.commands.agent import agents_of
from tenure_cli.commands.pool_group import all_pools
from tenure_cli.commands.status import service_status
from tenure_cli.connection import Connection, run
from tenure_cli.diagnosis import Facts, Finding, Level, diagnose
from tenure_cli.embedded.layout import SERVICES, STATE, TLS, default_data_folder
from tenure_cli.failures import ExitWith
from tenure_cli.output import output_option, plain, print_json
from tenure_cli.times import local_now
from tenure_core.errors import DomainError
from tenure_runtime.rpc.wire import bare, to_millis

Result = TypeVar("Result")
_MARKS = {Level.OK: "ok     ", Level.WARNING: "warning", Level.PROBLEM: "PROBLEM"}


@click.command()
@output_option
def doctor(output: str) -> None:
    """Look at everything, from services to certificates; exit with 1 for a problem."""
    findings = diagnose(run(_gather))
    if output == "json":
        print_json([_as_json(each) for each in findings])
    else:
        for each in findings:
            click.echo(f"{_MARKS[each.level]}  {plain(each.message)}")
            if each.advice:
                click.echo(f"         {plain(each.advice)}")
    if any(each.level is Level.PROBLEM for each in findings):
        raise ExitWith(1)


def _as_json(finding: Finding) -> dict[str, str]:
    return {
        "check": finding.check,
        "level": finding.level.value,
        "message": finding.message,
        "advice": finding.advice,
    }


async def _gather(connection: Connection) -> Facts:
    """Ask everything that can be asked; what cannot is left out."""
    facts = Facts(version("tenure"))
    facts.services = [await service_status(connection, name) for name in SERVICES]
    facts.agents = await _or_none(agents_of(connection))
    facts.pools = await _or_none(_pools(connection))
    facts.apart_ms = await _or_none(_apart_ms(connection))
    facts.over_commits = await _or_none(_over_commits(connection))
    facts.drifts = await _or_none(_drifts(connection))
    folder = default_data_folder()
    if (folder / STATE).exists():
        facts.folder = folder
        facts.modes = {str(path.relative_to(folder)): path.stat().st_mode for path in _keys(folder)}
    now_ms = round(local_now().timestamp() * 1_000)
    facts.certificates = look_at(used_here(folder / TLS), now_ms)
    return facts


def _keys(folder: Path) -> list[Path]:
    """Return what nobody else may see: files with keys, and folders that hold such."""
    tls = folder / TLS
    folders = [each for each in (folder / "keys", tls, tls / "authority") if each.is_dir()]
    return sorted([*folders, *(folder / "keys").glob("*"), *tls.rglob("*.key")])


async def _or_none(asked: Awaitable[Result]) -> Result | None:
    try:
        return await asked
    except DomainError:
        return None


async def _pools(connection: Connection) -> dict[str, str | None]:
    client, stub = await connection.scheduler()
    found: dict[str, str | None] = {}
    for pool in await all_pools(connection):
        request = spb.GetLeaderRequest(pool=pool.name)
        leader = await _or_none(client.call(stub.GetLeader, request))
        found[bare(pool.name)] = leader.holder if leader else None
    return found


async def _apart_ms(connection: Connection) -> int:
    client, stub = await connection.slottable()
    before = local_now()
    status = await client.call(stub.GetTableStatus, tpb.GetTableStatusRequest(pool="default"))
    here = (before.timestamp() + local_now().timestamp()) / 2
    return round(here * 1_000) - to_millis(status.as_of)


async def _over_commits(connection: Connection) -> int:
    client, stub = await connection.slottable()
    request = tpb.VerifyOccupancyRequest()
    return len((await client.call(stub.VerifyOccupancy, request, timeout_s=120)).over_commits)


async def _drifts(connection: Connection) -> int:
    client, stub = await connection.admission()
    return len((await client.call(stub.VerifyUsage, calls.VerifyUsageRequest())).drifts)
