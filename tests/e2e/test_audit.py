"""The audit trail of a real suite: every change by a caller is in it, and tampering shows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.support.cli import Cli
from tests.support.suite import RunningSuite, running_suite, until
from tests.tidy.permissions import CONTRACTS, SERVICES, table_of

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import identity_pb2 as ipb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.admission.v1 import quota_pb2 as qpb
from tenure.autoscaler.v1 import autoscaler_pb2 as spb
from tenure.autoscaler.v1.machine_pb2 import Group
from tenure.notices.v1 import notices_pb2 as npb
from tenure.registry.v1 import registry_pb2 as rpb
from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure.scheduler.v1 import scheduler_pb2 as cpb
from tenure.slottable.v1 import reservation_pb2 as vpb
from tenure.slottable.v1 import slottable_pb2 as tpb
from tenure_core.errors import Unavailable, WrongState
from tenure_runtime.clocks import SystemClock
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.identity import Role
from tenure_runtime.rpc.wire import to_timestamp

pytestmark = pytest.mark.timeout(240)
READS = (
    "Get",
    "BatchGet",
    "List",
    "Watch",
    "Wait",
    "Explain",
    "Find",
    "Predict",
    "WhatIf",
    "Verify",
    "Stream",
)
NO_CHANGE = {"TriggerCycle", "IssueToken"}
"""A cycle is the leader's work; what it does is in the change feeds. A token is kept nowhere."""
SECRET = "hunter2"
HOUR_MS = 3_600_000


def calls_that_change() -> set[tuple[str, str]]:
    """Return (service, call) of all that people may use to change something."""
    return {
        ("admission" if service in ("notices", "identity") else service, name)
        for service in CONTRACTS
        for method, roles in table_of(service)[1].roles_of_method.items()
        if roles & {Role.USER, Role.OPERATOR}
        and not (name := method.rpartition("/")[2]).startswith(READS)
        and name not in NO_CHANGE
    }


def soon() -> int:
    return SystemClock().now_ms() + HOUR_MS


def a_lease(**fields: Any) -> apb.CreateLeaseRequest:
    lease = lpb.Lease(node_count=1, amounts={"cpu": 1_000}, **fields)
    lease.terms.advance.start_time.CopyFrom(to_timestamp(soon()))
    lease.duration.FromSeconds(60)
    lease.work.command.extend(["run", f"--password={SECRET}"])
    lease.work.environment["DB"] = SECRET
    return apb.CreateLeaseRequest(lease=lease, request_id=RandomIds().request_id())


def a_window() -> tpb.CreateMaintenanceWindowRequest:
    window = vpb.MaintenanceWindow(pool="default", nodes=["nodes/agent-1"])
    window.interval.start_time.CopyFrom(to_timestamp(soon()))
    window.interval.end_time.CopyFrom(to_timestamp(soon() + 60_000))
    return tpb.CreateMaintenanceWindowRequest(maintenance_window=window)


async def change_everything(suite: RunningSuite) -> str:
    """Make each call that changes something; return the name of the lease."""
    async with suite.connect() as connection:

        async def call(service: str, request: Any) -> Any:
            client, stub = await getattr(connection, service)()
            method = getattr(stub, type(request).__name__.removesuffix("Request"))
            return await client.call(method, request)

        creation = a_lease()
        lease = (await call("admission", creation)).lease.name
        await call("admission", creation)
        await call("admission", apb.BatchCreateLeasesRequest(requests=[a_lease(), a_lease()]))
        update = apb.UpdateLeaseRequest(
            lease=lpb.Lease(name=lease, labels={"a": "b"}),
            update_mask=FieldMask(paths=["labels"]),
        )
        await call("admission", update)
        await call("admission", update)
        held = a_lease()
        held.lease.hold_duration.FromSeconds(600)
        name = (await call("admission", held)).lease.name

        async def confirmed() -> bool:
            try:
                await call("admission", apb.ConfirmLeasesRequest(names=[name]))
            except WrongState:
                return False
            return True

        await until(confirmed, 30, "the hold is booked, and confirmed")
        await call("admission", apb.CancelLeaseRequest(name=lease))
        quota = qpb.Quota(name="quotas/q", owner="ann", limits={"cpu": 1_000})
        await call("admission", apb.SetQuotaRequest(quota=quota))
        await call("admission", apb.DeleteQuotaRequest(name="quotas/q"))
        settings = npb.Settings(email="ann@example.org")
        await call("notices", npb.SetSettingsRequest(settings=settings, webhook_secret=SECRET * 3))
        await call("notices", npb.SendTestRequest())
        wanted = ipb.ApiKey(caller="ann", roles=[ipb.ROLE_MEMBER])
        made = (await call("identity", ipb.CreateApiKeyRequest(api_key=wanted))).api_key.name
        rotated = await call("identity", ipb.RotateApiKeyRequest(name=made))
        await call("identity", ipb.RevokeApiKeyRequest(name=rotated.api_key.name))
        window = (await call("slottable", a_window())).maintenance_window.name
        await call("slottable", tpb.DeleteMaintenanceWindowRequest(name=window))
        policy = ppb.Policy(name="policies/p")
        await call("scheduler", cpb.CreatePolicyRequest(policy=policy))
        policy.depth = 5
        depth = FieldMask(paths=["depth"])
        await call("scheduler", cpb.UpdatePolicyRequest(policy=policy, update_mask=depth))
        await call("scheduler", cpb.DeletePolicyRequest(name="policies/p"))
        pool = ppb.Pool(name="pools/x")
        await call("scheduler", cpb.CreatePoolRequest(pool=pool))
        pool.description = "another"
        text = FieldMask(paths=["description"])
        await call("scheduler", cpb.UpdatePoolRequest(pool=pool, update_mask=text))
        await call("scheduler", cpb.DeletePoolRequest(name="pools/x"))
        for verb in ("Cordon", "Drain", "Uncordon", "Uncordon"):
            await call("registry", getattr(rpb, f"{verb}AgentRequest")(name="agents/agent-1"))
        group = Group(
            name="groups/g", kind=Group.KIND_POOL, pool="pools/elsewhere", size_max=1,
            amounts={"cpu": 1_000},
        )  # fmt: skip
        await call("autoscaler", spb.CreateGroupRequest(group=group))
        group.size_max = 2
        size = FieldMask(paths=["size_max"])
        await call("autoscaler", spb.UpdateGroupRequest(group=group, update_mask=size))
        for verb in ("Pause", "Pause", "Resume", "Delete"):
            await call("autoscaler", getattr(spb, f"{verb}GroupRequest")(name="groups/g"))

        async def stepped_down() -> bool:
            try:
                await call("scheduler", cpb.StepDownRequest(pool="pools/default"))
            except Unavailable:
                return False
            return True

        await until(stepped_down, 30, "the pool has a leader to step down")
        return str(lease)


async def tamper(suite: RunningSuite, schema: str, statement: str) -> None:
    connection = await asyncpg.connect(suite.dsn())
    try:
        await connection.execute(f"SET search_path TO {schema}")
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(statement)
    finally:
        await connection.close()


async def said(cli: Cli, *arguments: str, code: int = 0) -> Any:
    done = await asyncio.to_thread(cli, *arguments, "-o", "json", code=code)
    return json.loads(done.stdout)


async def test_every_change_is_in_the_trail_and_tampering_shows() -> None:
    async with running_suite(agents=1) as suite:
        cli = Cli(suite.folder)
        lease = await change_everything(suite)
        entries = await said(cli, "audit", "list", "--limit", "1000")
        about = await said(cli, "audit", "list", "--what", lease)

        async def all_sealed() -> bool:
            return not any(each["unsealed"] for each in await said(cli, "audit", "verify"))

        await until(all_sealed, 20, "the loops seal what was written")
        verified = await said(cli, "audit", "verify")
        note = next(each["note"] for each in verified if each["service"] == "admission")
        await tamper(suite, "admission", "UPDATE audit_entries SET caller = 'mallory'")
        await tamper(suite, "registry", "DELETE FROM audit_entries WHERE method = 'DrainAgent'")
        broken = await said(cli, "audit", "verify", code=1)
        await tamper(suite, "admission", "DELETE FROM audit_batches WHERE number > 0")
        cut = await said(cli, "audit", "verify", "--service", "admission", "--noted", note, code=1)

        shown = await asyncio.to_thread(cli, "audit", "list", "--what", lease)

    assert {(each["service"], each["method"]) for each in entries} == calls_that_change()
    assert {each["caller"] for each in entries} == {"operator"}
    assert all(each["peer"].startswith(("ipv4:127.", "ipv6:")) for each in entries)
    # A repeat and an update that changes nothing leave no entry; three leases were created.
    assert [each["method"] for each in about] == ["CancelLease", "UpdateLease", "CreateLease"]
    assert sum(each["method"] == "BatchCreateLeases" for each in entries) == 2
    assert sum(each["method"] == "UncordonAgent" for each in entries) == 1
    assert sum(each["method"] == "PauseGroup" for each in entries) == 1
    created = about[2]["after"]
    assert SECRET not in json.dumps(entries)
    assert created["work"] == {
        "command": ["run", "--password=[hidden]"],
        "environment": {"DB": "[hidden]"},
    }
    assert about[2].get("request_id")
    assert (about[0]["before"]["state"], about[0]["after"]["labels"]) != ("", {})
    assert "created" in shown.stdout and "state: STATE_" in shown.stdout
    assert [each["breaches"] for each in verified] == [[]] * len(SERVICES)
    assert sum(each["entries"] for each in verified) == len(entries)
    kinds = {each["service"]: {breach["kind"] for breach in each["breaches"]} for each in broken}
    assert kinds == {
        **{service: set() for service in SERVICES},
        "admission": {"KIND_ALTERED"},
        "registry": {"KIND_REMOVED"},
    }
    messages = [breach["message"] for breach in cut[0]["breaches"]]
    assert any("that was noted" in message for message in messages), messages
