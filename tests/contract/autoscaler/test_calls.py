"""The autoscaler over real gRPC and PostgreSQL, beside a real registry with agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from tests.support.fake_agent import FakeAgent, connected

from tenure.autoscaler.v1 import autoscaler_pb2 as pb
from tenure.autoscaler.v1.autoscaler_pb2_grpc import AutoscalerServiceStub
from tenure.autoscaler.v1.machine_pb2 import ElasticPolicy, Group, Machine
from tenure_autoscaler.app import serve
from tenure_autoscaler.settings import AutoscalerSettings
from tenure_core.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from tenure_registry.app import serve as serve_registry
from tenure_registry.settings import RegistrySettings
from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key

ROLES = {"ops": Role.OPERATOR, "svc": Role.SERVICE, "ann": Role.USER, "a1": Role.AGENT}


class World:
    """One autoscaler and one registry over one database."""

    def __init__(
        self, port: int, registry: int, keys: dict[str, str], stack: AsyncExitStack
    ) -> None:
        self._port, self._registry, self._keys, self._stack = port, registry, keys, stack

    async def client(self, caller: str = "ops", port: int = 0) -> Client:
        target = f"127.0.0.1:{port or self._port}"
        return await self._stack.enter_async_context(connect(target, api_key=self._keys[caller]))

    async def call(self, method: str, request: Any, caller: str = "ops") -> Any:
        client = await self.client(caller)
        return await client.call(getattr(AutoscalerServiceStub(client.channel), method), request)

    async def agent(self, name: str) -> FakeAgent:
        client = await self.client(name, self._registry)
        return await self._stack.enter_async_context(connected(client, name))


@pytest.fixture
async def world(database_dsn: str, tmp_path: Path) -> AsyncIterator[World]:
    """Both run, with short periods; the scheduler and slottable are away."""
    made = {name: create_key(name, {role}) for name, role in ROLES.items()}
    keys = {name: key for name, (key, _) in made.items()}
    keyring = Keyring(entry for _, entry in made.values())
    file = tmp_path / "keyring.json"
    keyring.store(file)
    async with AsyncExitStack() as stack:
        registry = await stack.enter_async_context(
            serve_registry(
                RegistrySettings(
                    keyring_file=file, database_dsn=database_dsn, instance="r1", grace_s=0.2
                ),
                keyring,
            )
        )
        settings = AutoscalerSettings(
            keyring_file=file,
            database_dsn=database_dsn,
            registry_address=f"127.0.0.1:{registry}",
            api_key=keys["svc"],
            decide_period_s=0.1,
            grace_s=0.2,
        )
        port = await stack.enter_async_context(serve(settings, keyring))
        async with AsyncExitStack() as clients:
            yield World(port, registry, keys, clients)


def group(**fields: Any) -> Group:
    return Group(
        **{
            "name": "groups/g",
            "kind": Group.KIND_POOL,
            "pool": "pools/main",
            "size_max": 5,
            "amounts": {"cpu": 4_000},
            **fields,
        }
    )


async def test_groups_are_created_read_changed_and_forgotten(world: World) -> None:
    created = (await world.call("CreateGroup", pb.CreateGroupRequest(group=group()))).group
    assert (created.provider, created.boot_duration.seconds, created.etag) == ("observe", 120, "1")
    with pytest.raises(AlreadyExists):
        await world.call("CreateGroup", pb.CreateGroupRequest(group=group()))
    change = pb.UpdateGroupRequest(
        group=Group(name="groups/g", size_max=7, etag="1"),
        update_mask=FieldMask(paths=["size_max"]),
    )
    changed = (await world.call("UpdateGroup", change)).group
    assert (changed.size_max, changed.size_min, changed.etag) == (7, 0, "2")
    with pytest.raises(Conflict):
        await world.call("UpdateGroup", change)
    for method, paused in (("PauseGroup", True), ("PauseGroup", True), ("ResumeGroup", False)):
        request = getattr(pb, f"{method}Request")(name="groups/g")
        assert (await world.call(method, request)).group.paused is paused
    listed = (await world.call("ListGroups", pb.ListGroupsRequest(), "ann")).groups
    assert [each.name for each in listed] == ["groups/g"]
    await world.call("DeleteGroup", pb.DeleteGroupRequest(name="groups/g"))
    with pytest.raises(NotFound):
        await world.call("GetGroup", pb.GetGroupRequest(name="groups/g"))


async def test_everything_wrong_with_a_group_is_said_at_once(world: World) -> None:
    bad = group(name="groups/BAD", pool="main", size_min=9, size_max=5, amounts={"cpu": 0})
    with pytest.raises(Invalid) as refused:
        await world.call("CreateGroup", pb.CreateGroupRequest(group=bad, request_id="x"))
    assert [violation.field for violation in refused.value.violations] == [
        "group.name",
        "group.pool",
        "request_id",
        "group.size_min",
        "group.amounts[cpu]",
    ]
    fixed = pb.UpdateGroupRequest(group=group(pool="pools/other"))
    with pytest.raises(Invalid):
        await world.call("UpdateGroup", fixed)


async def test_an_elastic_group_says_how_it_is_kept(world: World) -> None:
    farm = group(
        kind=Group.KIND_ELASTIC,
        provider="simulated",
        elastic=ElasticPolicy(application="serve", drain_lower_duration=Duration(seconds=2)),
    )
    created = (await world.call("CreateGroup", pb.CreateGroupRequest(group=farm))).group
    kept = created.elastic
    assert (kept.application, kept.drain_lower_duration.seconds) == ("serve", 2)
    assert (kept.drain_upper_duration.seconds, kept.shutdown_duration.seconds) == (30, 120)
    change = pb.UpdateGroupRequest(
        group=Group(name="groups/g", elastic=ElasticPolicy(application="serve 2")),
        update_mask=FieldMask(paths=["elastic"]),
    )
    assert (await world.call("UpdateGroup", change)).group.elastic.application == "serve 2"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"kind": Group.KIND_ELASTIC, "provider": "process"}, ["group.elastic"]),
        ({"elastic": ElasticPolicy(application="serve")}, ["group.elastic"]),
        (
            {
                "kind": Group.KIND_ELASTIC,
                "elastic": ElasticPolicy(
                    application="serve 'open", interval_duration=Duration(seconds=0)
                ),
            },
            ["group.elastic.application", "group.elastic.interval_duration"],
        ),
        (
            {
                "kind": Group.KIND_ELASTIC,
                "elastic": ElasticPolicy(
                    application="serve", drain_upper_duration=Duration(seconds=5)
                ),
            },
            ["group.elastic.drain_lower_duration"],
        ),
    ],
    ids=["without a policy", "of a pool", "no program", "a band upside down"],
)
async def test_what_is_wrong_with_an_elastic_group_is_said(
    world: World, fields: dict[str, Any], wrong: list[str]
) -> None:
    with pytest.raises(Invalid) as refused:
        await world.call("CreateGroup", pb.CreateGroupRequest(group=group(**fields)))
    assert [violation.field for violation in refused.value.violations] == wrong


async def test_only_operators_change_groups(world: World) -> None:
    with pytest.raises(Forbidden):
        await world.call("CreateGroup", pb.CreateGroupRequest(group=group()), "ann")


async def test_machines_are_those_that_agents_show_and_decisions_say_why(world: World) -> None:
    await world.call("CreateGroup", pb.CreateGroupRequest(group=group(size_min=2)))
    client = await world.client("ann")
    stub = AutoscalerServiceStub(client.channel)
    listed = await client.call(stub.ListMachines, pb.ListMachinesRequest())
    assert list(listed.machines) == []
    agent = await world.agent("a1")
    await agent.hello()
    watch = pb.WatchMachinesRequest(resume_token=listed.resume_token)
    async with client.stream(stub.WatchMachines, watch) as stream:
        async for event in stream:
            if event.HasField("machine"):
                break
    assert (event.machine.name, event.machine.group) == ("machines/a1", "groups/g")
    assert (event.machine.state, event.machine.pool) == (Machine.STATE_RUNNING, "main")
    request = pb.ListDecisionsRequest(subject="groups/g")
    async with asyncio.timeout(5):
        while True:
            decisions = (await client.call(stub.ListDecisions, request)).decisions
            if decisions and decisions[0].current_count == 1:
                break
            await asyncio.sleep(0.05)
    newest = decisions[0]
    assert (newest.target_count, newest.rule, newest.enacted) == (2, "MINIMUM", False)
    assert newest.inputs["waiting"] == "unknown"
    info = (await world.call("GetServiceInfo", pb.GetServiceInfoRequest())).info
    assert (info.service, info.schema_version) == ("autoscaler", 3)
