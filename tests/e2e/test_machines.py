"""Scaling on one computer: machines come for what waits and what is booked, and go again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.contract.autoscaler.test_providers import example
from tests.support.cli import Cli
from tests.support.suite import RunningSuite, running_suite, until

from tenure.provider.v1 import provider_pb2_grpc
from tenure.slottable.v1 import slottable_pb2 as spb
from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub

pytestmark = pytest.mark.timeout(180)

QUICK = {"autoscaler": {"TENURE_DECIDE_PERIOD_S": "0.5"}}
GROUP = (
    "machine", "group", "create", "local", "--max", "3", "--machine", "cpu=2,memory=512Mi",
    "--boot", "8s", "--idle", "4s",
)  # fmt: skip


async def said(cli: Cli, *arguments: str) -> Any:
    done = await asyncio.to_thread(cli, *arguments)
    return json.loads(done.stdout)


async def machines(cli: Cli) -> dict[str, str]:
    found = await said(cli, "machine", "list", "-o", "json")
    return {machine["name"]: machine["state"] for machine in found}


async def eventually(cli: Cli, holds: Callable[[dict[str, str]], bool], what: str) -> None:
    async def look() -> bool:
        return holds(await machines(cli))

    await until(look, 60, what)


async def test_from_no_agents_a_run_brings_a_machine_that_goes_afterwards() -> None:
    async with running_suite(agents=0, services=QUICK) as suite:
        cli = Cli(suite.folder)
        await asyncio.to_thread(cli, *GROUP)
        done = await asyncio.to_thread(cli, "run", "--", "sh", "-c", "echo from $TENURE_NODE")
        assert "from machine-1" in done.stdout, done.stdout
        [(name, _)] = (await machines(cli)).items()
        assert name == "machines/machine-1"
        folder = suite.folder / "machines"
        assert [path.name for path in folder.iterdir()] == ["local.machine-1.1"]
        await eventually(
            cli, lambda seen: set(seen.values()) == {"STATE_REMOVED"}, "the machine goes"
        )
        pid = json.loads((folder / "local.machine-1.1" / "process.json").read_text())["pid"]
        assert not runs(pid)
        told = await said(cli, "machine", "decisions", "--group", "local", "-o", "json")
        done_things = [each["results"] for each in told if each.get("enacted")]
        assert {"machine-1": "BOOTING"} in done_things and {"machine-1": "REMOVED"} in done_things


async def test_a_booking_against_a_fleet_that_is_not_there_finds_its_machines_at_its_start() -> (
    None
):
    async with running_suite(agents=0, services=QUICK) as suite:
        cli = Cli(suite.folder)
        await asyncio.to_thread(cli, *GROUP, "--boot", "3s")
        async with suite.client("slottable") as client:
            stub = SlotTableServiceStub(client.channel)

            async def offered() -> bool:
                page = await client.call(stub.ListNodes, spb.ListNodesRequest(pool="default"))
                return len(page.nodes) == 3 and not any(node.agent for node in page.nodes)

            await until(offered, 30, "nodes are offered before there are machines")
        lease = await asyncio.to_thread(
            cli.create, "-n", "2", "--cpu", "2", "--start", "+24s", "--time", "20s"
        )
        booked = await asyncio.to_thread(cli.wait, lease, "scheduled")
        assert booked["state"] == "STATE_SCHEDULED", booked
        start_s = instant(booked["terms"]["advance"]["start_time"])
        done = await asyncio.to_thread(cli.wait, lease)
        assert (done["state"], done["reason"]) == ("STATE_DONE", "COMPLETED")
        assert 0 <= instant(done["start_time"]) - start_s < 2
        assert came_up(suite) < start_s
        await eventually(
            cli, lambda seen: set(seen.values()) == {"STATE_REMOVED"}, "the machines go"
        )


def instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def came_up(suite: RunningSuite) -> float:
    """Return when the last of two machines had been made, by its data folder."""
    made = sorted((suite.folder / "machines").glob("*/agent/incarnation"))
    assert len(made) == 2, made
    return max(path.stat().st_mtime for path in made)


async def test_machines_outlive_a_killed_autoscaler_and_are_kept_by_the_next() -> None:
    async with running_suite(agents=0, services=QUICK) as suite:
        cli = Cli(suite.folder)
        await asyncio.to_thread(cli, *GROUP, "--min", "1")
        await eventually(cli, lambda seen: list(seen.values()) == ["STATE_RUNNING"], "one is up")
        process = suite.folder / "machines" / "local.machine-1.1" / "process.json"
        before = json.loads(process.read_text())
        await suite.runs_again("autoscaler", suite.kill("autoscaler"))
        done = await asyncio.to_thread(cli, "run", "--", "sh", "-c", "echo on $TENURE_NODE")
        assert "on machine-1" in done.stdout
        assert json.loads(process.read_text()) == before
        assert [path.name for path in process.parent.parent.iterdir()] == ["local.machine-1.1"]
        await asyncio.to_thread(cli, "machine", "group", "set", "local", "--min", "0")
        await eventually(cli, lambda seen: list(seen.values()) == ["STATE_REMOVED"], "it goes")
        assert not runs(before["pid"])
        await asyncio.to_thread(cli, "machine", "group", "set", "local", "--max", "0")

        async def deleted() -> bool:
            said = await asyncio.to_thread(cli, "machine", "group", "delete", "local", code=None)
            return said.returncode == 0

        await until(deleted, 20, "its offers are taken back, and the group can go")


def runs(pid: int) -> bool:
    """Say whether a process has not ended; nobody may be there to reap it."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.slow
async def test_a_program_of_anybodys_makes_and_ends_machines() -> None:
    """Its machines never get an agent here, so each is given up, removed there and replaced."""
    machines_there = example()
    server = grpc.aio.server()
    provider_pb2_grpc.add_MachineProviderServiceServicer_to_server(machines_there, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = {"TENURE_EXTERNAL_PROVIDER_ADDRESS": f"127.0.0.1:{port}"}
    services = {"autoscaler": {**QUICK["autoscaler"], **address}}
    try:
        async with running_suite(agents=0, services=services) as suite:
            cli = Cli(suite.folder)
            await asyncio.to_thread(
                cli, *GROUP, "--provider", "external", "--max", "1", "--boot", "2s"
            )
            await asyncio.to_thread(cli.create, "--cpu", "2", "--time", "1m")
            await until(lambda: machines_there.made >= 2, 60, "one that does not boot is replaced")
            [machine] = machines_there.machines.values()
            assert (machine.machine, machine.owner) == ("local-1", "tenure/local")
            assert machine.token not in machines_there.ended
            assert machines_there.ended == {"local.local-1.1"}
    finally:
        await server.stop(0)
