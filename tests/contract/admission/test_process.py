"""The process itself: it serves, is killed at any moment, comes back, and has lost nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.contract.admission.harness import Caller, State, a_lease, request_id

from tenure.admission.v1 import admission_pb2 as calls
from tenure_core.errors import Unavailable
from tenure_runtime.rpc.client import RetryPolicy, connect
from tenure_runtime.rpc.identity import Keyring, Role, create_key

pytestmark = [pytest.mark.postgres, pytest.mark.faults]


@dataclass
class Process:
    """An admission process that can be killed and started again on one port."""

    folder: Path
    dsn: str
    port: int = 0
    child: asyncio.subprocess.Process | None = None
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key, entry = create_key("user", {Role.USER, Role.SERVICE})
        Keyring([entry]).store(self.folder / "keyring.json")

    async def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "TENURE_DATABASE_DSN": self.dsn,
            "TENURE_KEYRING_FILE": str(self.folder / "keyring.json"),
            "TENURE_READY_FILE": str(ready),
            "TENURE_LISTEN": f"127.0.0.1:{self.port}",
            "TENURE_LOG_LEVEL": "error",
        }
        self.child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tenure_admission", env=environment
        )
        async with asyncio.timeout(30):
            while not ready.exists():
                assert self.child.returncode is None, "admission did not start"
                await asyncio.sleep(0.02)
        self.port = json.loads(ready.read_text())["port"]

    async def end(self, how: signal.Signals) -> int:
        assert self.child is not None
        if self.child.returncode is None:
            self.child.send_signal(how)
        return await self.child.wait()

    def caller(self) -> Caller:
        patient = RetryPolicy(attempts=200, longest_ms=300)
        target = f"127.0.0.1:{self.port}"
        return Caller(connect(target, api_key=self.key, default_timeout_s=60, retry=patient))


@asynccontextmanager
async def running(folder: Path, dsn: str) -> AsyncIterator[Process]:
    process = Process(folder, dsn)
    await process.start()
    try:
        yield process
    finally:
        await process.end(signal.SIGKILL)


async def follow(caller: Caller, token: str, until: asyncio.Event) -> list[tuple[str, int]]:
    """Follow all changes over reconnections; end once nothing new comes after `until`."""
    seen: list[tuple[str, int]] = []
    while True:
        request = calls.WatchLeasesRequest(resume_token=token)
        try:
            async with caller.client.stream(caller.stub.WatchLeases, request) as stream:
                while True:
                    try:
                        async with asyncio.timeout(1.0):
                            event = await stream.read()
                    except TimeoutError:
                        if until.is_set():
                            return seen
                        break
                    if event is None:
                        break
                    token = event.resume_token
                    if event.HasField("lease"):
                        seen.append((event.lease.name, event.lease.version))
        except Unavailable:
            await asyncio.sleep(0.05)


async def test_kill_9_between_loses_nothing_and_repeats_nothing(
    tmp_path: Path, database_dsn: str
) -> None:
    """Writers go on over two kills, with their request ids; a watcher sees each version once."""
    async with running(tmp_path, database_dsn) as process:
        caller = process.caller()
        token = (await caller(calls.ListLeasesRequest())).resume_token
        created: list[str] = []
        stop, settled = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            while not stop.is_set():
                lease = await caller.create(a_lease(), request_id=request_id())
                cancel = calls.CancelLeaseRequest(name=lease.name, request_id=request_id())
                assert (await caller(cancel)).lease.version == 2
                created.append(lease.name)

        async def torment() -> None:
            for _ in range(2):
                await asyncio.sleep(0.4)
                await process.end(signal.SIGKILL)
                await process.start()
            await asyncio.sleep(0.4)
            stop.set()

        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow(caller, token, settled))
            writers = [group.create_task(write()) for _ in range(4)]
            group.create_task(torment())
            await asyncio.wait(writers)
            settled.set()

        page = await caller(calls.ListLeasesRequest(page_size=1_000))
        listed = {lease.name: lease for lease in page.leases}
        assert created
        assert len(set(created)) == len(created)
        assert set(listed) == set(created)
        assert {lease.state for lease in page.leases} == {State.STATE_CANCELLED}
        expected = [(name, version) for name in created for version in (1, 2)]
        assert sorted(following.result()) == sorted(expected)
        await caller.client.close()


async def test_a_process_that_is_told_to_stop_ends_well(tmp_path: Path, database_dsn: str) -> None:
    async with running(tmp_path, database_dsn) as process:
        caller = process.caller()
        info = (await caller(calls.GetServiceInfoRequest())).info
        assert (info.service, info.schema_version) == ("admission", 4)
        async with caller.client.stream(
            caller.stub.WatchLeases, calls.WatchLeasesRequest()
        ) as stream:
            await stream.read()
            ending = asyncio.create_task(process.end(signal.SIGTERM))
            with pytest.raises(Unavailable):
                await stream.read()
            assert await ending == 0
        await caller.client.close()
