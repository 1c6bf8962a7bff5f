"""The SDK for asyncio: `async with connect_async() as plane`.

Decides what a call of the SDK means on the wire: request ids for whatever changes something,
deadlines, waits cut into calls, resource names. `blocking` offers the same without asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Unpack

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure.client.async_lease import AsyncLease
from tenure.client.discovery import Discovery
from tenure.client.errors import LeaseEnded
from tenure.client.exchange import Doorway
from tenure.client.forecast import Forecast, what_if
from tenure.client.lease_info import LeaseInfo, LeaseTable, number_of
from tenure.client.wanted import Wanted, full, lease_message
from tenure.client.watching import Change, watch
from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub
from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub
from tenure_core.leases.states import LeaseState
from tenure_runtime.ids import RandomIds

if TYPE_CHECKING:
    from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceAsyncStub
    from tenure.registry.v1.registry_pb2_grpc import RegistryServiceAsyncStub
    from tenure_runtime.rpc.client import Client

_PAGE: Final = 500
HOLDS: Final = (LeaseState.ACTIVE,)


class AsyncPlane:
    """The services, as one caller. Nothing is sent before the first call."""

    def __init__(self, discovery: Discovery, *, timeout_s: float = 10.0) -> None:
        self._doorway = Doorway(discovery, default_timeout_s=timeout_s)

    async def __aenter__(self) -> AsyncPlane:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls under way are cancelled."""
        await self._doorway.close()

    async def client(self, service: str) -> Client:
        """Return the client of a service, for what the SDK does not offer itself."""
        return self._doorway.client(service)

    async def admission(self) -> tuple[Client, AdmissionServiceAsyncStub]:
        """Return the client and the stub of admission."""
        client = await self.client("admission")
        return client, AdmissionServiceStub(client.channel)

    async def registry(self) -> tuple[Client, RegistryServiceAsyncStub]:
        """Return the client and the stub of the registry."""
        client = await self.client("registry")
        return client, RegistryServiceStub(client.channel)

    async def submit(self, *, request_id: str = "", **wanted: Unpack[Wanted]) -> AsyncLease:
        """Ask for a lease and return it; it is created, not yet accepted.

        A repeat with the same `request_id` returns the same lease; without one, each call makes a
        new lease, however often the call had to be repeated. Raises Invalid with all violations.
        """
        client, stub = await self.admission()
        request = apb.CreateLeaseRequest(
            lease=lease_message(**wanted), request_id=request_id or RandomIds().request_id()
        )
        answer = await client.call(stub.CreateLease, request)
        return AsyncLease(self, LeaseInfo.of(answer.lease))

    async def check(self, **wanted: Unpack[Wanted]) -> LeaseInfo:
        """Return the lease that `submit` would make, without making it. Raises as it does."""
        client, stub = await self.admission()
        request = apb.CreateLeaseRequest(lease=lease_message(**wanted), validate_only=True)
        return LeaseInfo.of((await client.call(stub.CreateLease, request)).lease)

    async def forecast(self, **wanted: Unpack[Wanted]) -> Forecast:
        """Say when such a lease would start, without making it."""
        client = await self.client("scheduler")
        return await what_if(client, SchedulerServiceStub(client.channel), lease_message(**wanted))

    async def lease(self, lease_id: str) -> AsyncLease:
        """Return a lease that exists. Raises NotFound LEASE_NOT_FOUND."""
        client, stub = await self.admission()
        answer = await client.call(stub.GetLease, apb.GetLeaseRequest(name=full(lease_id)))
        return AsyncLease(self, LeaseInfo.of(answer.lease))

    async def leases(
        self,
        *,
        limit: int = 1_000,
        states: Iterable[LeaseState] = (),
        owner: str = "",
        project: str = "",
        pool: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> LeaseTable:
        """Return up to `limit` leases, newest first, that match every filter."""
        request = apb.ListLeasesRequest(
            owner=owner,
            project=project,
            pool=pool,
            states=[number_of(state) for state in states],
            labels=labels or {},
        )
        return await self._list(request, limit)

    async def token(self) -> str:
        """Return where the changes are now: a watch from there shows all that come after."""
        return (await self._list(apb.ListLeasesRequest(), 1)).token

    async def _list(self, request: apb.ListLeasesRequest, limit: int | None) -> LeaseTable:
        client, stub = await self.admission()
        found = LeaseTable()
        while True:
            left = _PAGE if limit is None else limit - len(found)
            if left <= 0:
                return found
            request.page_size = min(_PAGE, left)
            page = await client.call(stub.ListLeases, request)
            found.extend(LeaseInfo.of(lease) for lease in page.leases)
            # What changed while the pages were read comes after the first page's token.
            found.token = found.token or page.resume_token
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found

    async def watch(
        self,
        *,
        token: str = "",
        owner: str = "",
        pool: str = "",
        lease_id: str = "",
        relist: bool = False,
        patience_s: float | None = 60.0,
    ) -> AsyncGenerator[Change, None]:
        """Yield every change after `token`, over any number of breaks.

        Without a token it starts when the first change is asked for; `token()` and `leases().token`
        give one beforehand. Close it when done (`contextlib.aclosing`). When the token is too old
        it raises WatchExpired; with `relist` it yields all leases as they are, `listed`, and goes
        on.
        Raises the last error when nobody was reached for `patience_s`; None: never.
        """
        client, stub = await self.admission()

        async def list_again() -> LeaseTable:
            if not lease_id:
                return await self._list(apb.ListLeasesRequest(owner=owner, pool=pool), None)
            found = LeaseTable()
            found.token = await self.token()
            found.append((await self.lease(lease_id)).info)
            return found

        request = apb.WatchLeasesRequest(
            resume_token=token or await self.token(),
            owner=owner,
            pool=pool,
            name=full(lease_id) if lease_id else "",
        )
        changes = watch(
            client, stub, request, patience_s=patience_s, list_again=list_again if relist else None
        )
        try:
            async for change in changes:
                yield change
        finally:
            await changes.aclose()

    @asynccontextmanager
    async def hold(
        self, *, within_s: float | None = None, **wanted: Unpack[Wanted]
    ) -> AsyncIterator[AsyncLease]:
        """Hold a lease for the length of a block: wait until it is ACTIVE, give it back at the end.

        It is given back however the block ends, also when it never came. Raises TimeoutError when
        it is not active within `within_s`, LeaseEnded when it ends before. The block is not
        interrupted when its time is over: look at `await lease.refresh()`.
        """
        lease = await self.submit(**wanted)
        try:
            info = await lease.wait(*HOLDS, within_s=within_s)
            if info.ended:
                raise LeaseEnded(info)
            yield lease
        finally:
            # A cancelled task gives back as well.
            await asyncio.shield(lease.give_back())

    async def cancel(self, lease_id: str, *, message: str = "", etag: str = "") -> LeaseInfo:
        """Give a lease up; one that has ended is returned as it is."""
        client, stub = await self.admission()
        request = apb.CancelLeaseRequest(
            name=full(lease_id), etag=etag, message=message, request_id=RandomIds().request_id()
        )
        return LeaseInfo.of((await client.call(stub.CancelLease, request)).lease)

    async def confirm(self, *lease_ids: str) -> list[LeaseInfo]:
        """Take leases that were asked for with a hold: all of them, or none when one is refused.

        Raises WrongState HOLD_EXPIRED, LEASE_NOT_BOOKED, LEASE_ENDED.
        """
        client, stub = await self.admission()
        request = apb.ConfirmLeasesRequest(
            names=[full(each) for each in lease_ids], request_id=RandomIds().request_id()
        )
        answer = await client.call(stub.ConfirmLeases, request)
        return [LeaseInfo.of(lease) for lease in answer.leases]

    async def update(self, lease: lpb.Lease, paths: Iterable[str]) -> LeaseInfo:
        """Ask for a change of the fields named; with an etag, only if it is still that."""
        client, stub = await self.admission()
        request = apb.UpdateLeaseRequest(lease=lease, request_id=RandomIds().request_id())
        request.update_mask.paths.extend(paths)
        return LeaseInfo.of((await client.call(stub.UpdateLease, request)).lease)
