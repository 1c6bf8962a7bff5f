"""One lease, for asyncio: read it, wait for it, change it, read its output, give it up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.client.errors import LeaseEnded, NotFound, Unavailable
from tenure.client.lease_info import ENDED, LeaseInfo, number_of
from tenure.client.spans import Span, When, instant_ms, span_ms
from tenure.client.wanted import full
from tenure.registry.v1 import registry_pb2 as gpb
from tenure_core.leases.states import LeaseState
from tenure_runtime.rpc.wire import to_duration, to_timestamp

if TYPE_CHECKING:
    from tenure.client.aio import AsyncPlane

_SLICE_S: Final = 30.0
"""A wait is asked for in such pieces, so that a dead server is noticed."""
_ANSWER_S: Final = 10.0
_BREAKS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a lease is where it is. `remedies` are what would help."""

    sentences: tuple[str, ...]
    remedies: tuple[str, ...]
    queue_position: int


class AsyncLease:
    """A lease. `info` is how it was when it was last read."""

    def __init__(self, plane: AsyncPlane, info: LeaseInfo) -> None:
        self._plane = plane
        self.info = info

    def __repr__(self) -> str:
        return f"<lease {self.id} {self.info.state.name.lower()}>"

    def _repr_html_(self) -> str:
        return self.info._repr_html_()

    @property
    def id(self) -> str:
        """Return its id."""
        return self.info.id

    async def refresh(self) -> LeaseInfo:
        """Read it anew."""
        self.info = (await self._plane.lease(self.id)).info
        return self.info

    async def wait(self, *states: LeaseState, within_s: float | None = None) -> LeaseInfo:
        """Wait until it is in one of `states` or has ended, whichever comes first.

        Without states: until it has ended. Raises TimeoutError after `within_s`; None: never.
        """
        loop = asyncio.get_running_loop()
        end = None if within_s is None else loop.time() + within_s
        client, stub = await self._plane.admission()
        while True:
            left_s = _SLICE_S if end is None else max(0.0, min(_SLICE_S, end - loop.time()))
            request = apb.WaitLeaseRequest(
                name=full(self.id),
                states=[number_of(state) for state in states],
                # Nothing at all would mean the server's default.
                timeout=to_duration(max(1, round(left_s * 1_000))),
            )
            answer = await client.call(stub.WaitLease, request, timeout_s=left_s + _ANSWER_S)
            self.info = LeaseInfo.of(answer.lease)
            if self.info.state in {*states, *ENDED}:
                return self.info
            if end is not None and loop.time() >= end:
                wanted = " or ".join(state.name.lower() for state in states) or "over"
                raise TimeoutError(
                    f"lease {self.id} is {self.info.state.name.lower()}, not {wanted}, after "
                    f"{within_s:g} s: {self.info.sentence}"
                )

    async def result(self, *, within_s: float | None = None) -> LeaseInfo:
        """Wait until it has ended. Raises LeaseEnded unless it ended as it should."""
        info = await self.wait(within_s=within_s)
        if not info.succeeded:
            raise LeaseEnded(info)
        return info

    async def cancel(self, message: str = "") -> LeaseInfo:
        """Give it up; nothing happens when it has ended."""
        self.info = await self._plane.cancel(self.id, message=message)
        return self.info

    async def give_back(self) -> None:
        """Give it up if it has not ended; nothing is said when it cannot be found any more."""
        try:
            await self.cancel("Given back.")
        except NotFound:
            return

    async def change(
        self,
        *,
        duration: Span | None = None,
        start: When | None = None,
        nodes: int | None = None,
        priority: int | None = None,
        only_if_unchanged: bool = True,
    ) -> LeaseInfo:
        """Ask for other terms: longer or shorter, another start, more or fewer slots, a priority.

        A waiting lease changes at once; one that holds capacity has a `message.pending_change` that
        its leader decides (`settled` waits for that). Raises Conflict ETAG_MISMATCH when the lease
        is not as `info` says any more, unless `only_if_unchanged` is off.
        """
        lease = lpb.Lease(name=full(self.id), etag=self.info.etag if only_if_unchanged else "")
        paths = []
        if duration is not None:
            lease.duration.CopyFrom(to_duration(span_ms(duration)))
            paths.append("duration")
        if start is not None:
            lease.terms.advance.start_time.CopyFrom(to_timestamp(instant_ms(start)))
            paths.append("terms")
        if nodes is not None:
            lease.node_count = nodes
            paths.append("node_count")
        if priority is not None:
            lease.priority = priority
            paths.append("priority")
        self.info = await self._plane.update(lease, paths)
        return self.info

    async def settled(self, *, within_s: float = 60.0) -> LeaseInfo:
        """Wait until a pending change is decided; `message.pending_change` says how."""
        client, stub = await self._plane.admission()
        request = apb.WaitLeaseRequest(
            name=full(self.id),
            until_change_decided=True,
            timeout=to_duration(round(within_s * 1_000)),
        )
        answer = await client.call(stub.WaitLease, request, timeout_s=within_s + _ANSWER_S)
        self.info = LeaseInfo.of(answer.lease)
        if answer.timed_out:
            raise TimeoutError(f"the change of lease {self.id} is not decided")
        return self.info

    async def explain(self) -> Explanation:
        """Say why it is where it is."""
        client, stub = await self._plane.admission()
        answer = await client.call(stub.ExplainLease, apb.ExplainLeaseRequest(name=full(self.id)))
        self.info = LeaseInfo.of(answer.lease)
        return Explanation(
            tuple(answer.sentences),
            tuple(each.remedy for each in answer.obstacles if each.remedy),
            answer.queue_position,
        )

    async def output(self, rank: int = 0, *, follow: bool = False) -> AsyncGenerator[bytes, None]:
        """Yield what one slot of its last attempt printed; with `follow`, until the work ends.

        Goes on where it was after a break. Only operators may read output today (METHOD_FORBIDDEN).
        """
        client, stub = await self._plane.registry()
        offset, breaks = 0, 0
        while True:
            request = gpb.StreamLogsRequest(
                lease=full(self.id), rank=rank, offset=offset, follow=follow
            )
            try:
                async with client.stream(stub.StreamLogs, request) as parts:
                    async for part in parts:
                        offset, breaks = part.offset + len(part.data), 0
                        yield part.data
                return
            except Unavailable:
                # Another replica has its stream, or the agent is about to come back.
                breaks += 1
                if breaks > _BREAKS_MAX:
                    raise
            await asyncio.sleep(0.5)
