"""Submits the leases of a demo when their time comes, and follows what becomes of them."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.type.v1 import work_pb2
from tenure_cli.connection import Connection
from tenure_cli.demo.workload import ROUNDS, DemoLease
from tenure_cli.leases import ENDED
from tenure_core.errors import DomainError, Unavailable
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.wire import bare, to_duration, to_timestamp

AMOUNTS: Final = {"cpu": 1_000, "memory": 64 * 2**20}
WORK: Final = Path(__file__).with_name("work.py")


@dataclass
class DemoState:
    """What is known of the demo while it runs. `began_ms` is its begin on the wall clock."""

    leases: list[DemoLease]
    began_ms: int
    known: dict[str, lpb.Lease] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    suspended: set[str] = field(default_factory=set)

    def all_ended(self) -> bool:
        """Say whether every lease of the demo has ended or was never taken."""
        return all(
            lease.id in self.refused
            or (lease.id in self.known and self.known[lease.id].state in ENDED)
            for lease in self.leases
        )


class Submitter:
    """Plays a demo's leases against a suite."""

    def __init__(self, connection: Connection, state: DemoState, results: Path) -> None:
        self._connection = connection
        self._state = state
        self._results = results
        self._ids = RandomIds()

    async def run(self) -> None:
        """Submit everything in time and return when all have ended."""
        token = await self._token()
        follow = asyncio.create_task(self._follow(token))
        submit = asyncio.create_task(self._submit())
        try:
            while not (submit.done() and self._state.all_ended()):
                for task in (submit, follow):
                    if task.done() and task.exception() is not None:
                        task.result()
                await asyncio.sleep(0.1)
        finally:
            submit.cancel()
            follow.cancel()
            await asyncio.gather(submit, follow, return_exceptions=True)

    async def _token(self) -> str:
        client, stub = await self._connection.admission()
        request = apb.ListLeasesRequest(page_size=1)
        return (await client.call(stub.ListLeases, request)).resume_token

    async def _submit(self) -> None:
        async with asyncio.TaskGroup() as group:
            for lease in self._state.leases:
                due_s = (self._state.began_ms + lease.arrival) / 1_000
                await asyncio.sleep(max(0.0, due_s - time.time()))  # noqa: TID251  # plays a trace
                group.create_task(self._create(lease))

    async def _create(self, lease: DemoLease) -> None:
        client, stub = await self._connection.admission()
        request = apb.CreateLeaseRequest(
            lease=self._wanted(lease), lease_id=lease.id, request_id=self._ids.request_id()
        )
        while True:
            try:
                created = (await client.call(stub.CreateLease, request, timeout_s=30)).lease
            except Unavailable:
                # The same request id: if the lease was stored before the answer got lost, this
                # returns it.
                await asyncio.sleep(0.2)
            except DomainError as error:
                self._state.refused[lease.id] = error.reason
                return
            else:
                self._note(created)
                return

    def _wanted(self, lease: DemoLease) -> lpb.Lease:
        seconds = lease.run / 1_000
        began = self._state.began_ms
        terms = lpb.Terms(best_effort=lpb.BestEffortTerms())
        if lease.start is not None:
            start = to_timestamp(began + lease.start)
            terms = lpb.Terms(advance=lpb.AdvanceTerms(start_time=start))
        elif lease.deadline is not None:
            by = to_timestamp(began + lease.deadline)
            terms = lpb.Terms(deadline=lpb.DeadlineTerms(deadline_time=by))
        elif lease.kind == "immediate":
            terms = lpb.Terms(immediate=lpb.ImmediateTerms())
        command = [sys.executable, "-S", "-E", str(WORK)]
        command += [lease.seed, str(ROUNDS), f"{seconds:.3f}", str(self._results)]
        return lpb.Lease(
            terms=terms,
            node_count=lease.width,
            amounts=AMOUNTS,
            duration=to_duration(lease.request),
            work=work_pb2.Work(command=command),
            labels={"demo": lease.kind.replace(" ", "-")},
        )

    async def _follow(self, token: str) -> None:
        client, stub = await self._connection.admission()
        while True:
            request = apb.WatchLeasesRequest(resume_token=token)
            try:
                async with client.stream(stub.WatchLeases, request) as changes:
                    async for change in changes:
                        token = change.resume_token
                        if change.HasField("lease"):
                            self._note(change.lease)
            except DomainError:
                await asyncio.sleep(0.2)

    def _note(self, lease: lpb.Lease) -> None:
        name = bare(lease.name)
        before = self._state.known.get(name)
        if before is None or before.version < lease.version:
            self._state.known[name] = lease
        if lease.state == lpb.Lease.STATE_SUSPENDED:
            self._state.suspended.add(name)
