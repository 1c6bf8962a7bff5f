"""`tenure whatif` and `tenure simulate history` on a suite that runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.suite import RunningSuite, running_suite, until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.type.v1 import work_pb2
from tenure_cli.connection import Connection
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import to_duration

pytestmark = pytest.mark.timeout(120)


async def tenure(suite: RunningSuite, *words: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tenure_cli",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "TENURE_DATA": str(suite.folder)},
    )
    out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


async def submitted(connection: Connection, slots: int, seconds: int) -> str:
    client, stub = await connection.admission()
    lease = lpb.Lease(
        node_count=slots,
        amounts={"cpu": 1000},
        duration=to_duration(seconds * 1_000),
        work=work_pb2.Work(command=["sleep", "100"]),
        terms=lpb.Terms(best_effort=lpb.BestEffortTerms()),
    )
    request = apb.CreateLeaseRequest(request_id=RandomIds().request_id(), lease=lease)
    answer = await client.call(stub.CreateLease, request)
    return answer.lease.name.removeprefix("leases/")


async def state_of(connection: Connection, lease: str) -> int:
    client, stub = await connection.admission()
    answer = await client.call(stub.GetLease, apb.GetLeaseRequest(name=f"leases/{lease}"))
    return answer.lease.state


async def asked(suite: RunningSuite, *words: str) -> Any:
    return json.loads(await tenure(suite, *words, "-o", "json"))


async def test_what_waits_is_predicted_under_this_policy_and_another(tmp_path: Path):
    """One node of four slots: one lease holds it all, one is promised the next, two wait."""
    async with running_suite(agents=1) as suite, suite.connect() as connection:
        holds = await submitted(connection, 4, 600)

        async def is_held() -> bool:
            return await state_of(connection, holds) == lpb.Lease.STATE_ACTIVE

        await until(is_held, 30, "the first lease runs")
        head = await submitted(connection, 4, 3_600)
        long = await submitted(connection, 4, 1_800)
        brief = await submitted(connection, 4, 60)
        wanted = [lpb.Lease.STATE_SCHEDULED, lpb.Lease.STATE_QUEUED, lpb.Lease.STATE_QUEUED]

        async def are_planned() -> bool:
            return [await state_of(connection, each) for each in (head, long, brief)] == wanted

        await until(are_planned, 30, "the head has its promise and the others wait")

        told = await asked(suite, "whatif")
        assert [each["lease"] for each in told] == [head, long, brief]
        assert [each["booked"] for each in told] == [True, False, False]
        assert told[0]["start"] + 3_600_000 == told[1]["start"]
        assert told[1]["start"] + 1_800_000 == told[2]["start"]
        assert all(each["message"] for each in told)

        pairs = {
            each["lease"]: each for each in await asked(suite, "whatif", "--ordering", "shortest")
        }
        assert set(pairs) == {head, long, brief}
        assert pairs[head]["other_start_ms"] == pairs[head]["start_ms"], "a promise stands"
        assert pairs[long]["start_ms"] + 1_800_000 == pairs[brief]["start_ms"]
        assert pairs[brief]["other_start_ms"] == pairs[long]["start_ms"]
        assert pairs[long]["other_start_ms"] == pairs[long]["start_ms"] + 60_000

        more = await asked(suite, "whatif", "-n", "2", "--cpu", "2", "--time", "1h")
        assert more["accepted"] is True
        assert more["nodes"] == ["nodes/agent-1"] * 2
        shown = await tenure(suite, "whatif", "--policy", "conservative")
        assert "3 to start: 0 earlier, 0 later" in shown

        await tenure(suite, "lease", "cancel", brief)
        trace = tmp_path / "history.json"
        await tenure(suite, "simulate", "history", str(trace))
        out = tmp_path / "leases.json"
        await tenure(suite, "simulate", str(trace), "--json", str(out), "-q")
        replayed = {each["lease"]: each for each in json.loads(out.read_text())["leases"]}
        assert set(replayed) == {holds, head, long, brief}
        assert replayed[holds]["wait_ms"] == 0
        assert replayed[head]["start_ms"] == replayed[holds]["end_ms"]
        assert replayed[brief]["state"] == "CANCELLED"
        assert (replayed[brief]["start_ms"], replayed[head]["state"]) == (None, "DONE")
