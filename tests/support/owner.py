"""An owner of leases, for tests: submits, waits, cancels, through admission's real calls."""

from __future__ import annotations

from typing import Any

from tests.support.suite import until

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub
from tenure_cli.leases import state_name
from tenure_runtime.ids import RandomIds
from tenure_runtime.rpc.client import Client
from tenure_runtime.rpc.wire import to_duration


class Owner:
    """Owns leases through one client of admission."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stub = AdmissionServiceStub(client.channel)

    async def submit(self, name: str, **fields: Any) -> lpb.Lease:
        """Create a lease: best effort, one processor, a minute, unless said otherwise."""
        given: dict[str, Any] = {
            "terms": lpb.Terms(best_effort=lpb.BestEffortTerms()),
            "node_count": 1,
            "amounts": {"cpu": 1_000},
            "duration": to_duration(60_000),
            **fields,
        }
        request = apb.CreateLeaseRequest(
            lease=lpb.Lease(**given), lease_id=name, request_id=RandomIds().request_id()
        )
        return (await self._client.call(self._stub.CreateLease, request)).lease

    async def cancel(self, name: str) -> lpb.Lease:
        """Cancel a lease."""
        request = apb.CancelLeaseRequest(name=f"leases/{name}")
        return (await self._client.call(self._stub.CancelLease, request)).lease

    async def lease(self, name: str) -> lpb.Lease:
        """Return a lease as it is now."""
        request = apb.GetLeaseRequest(name=f"leases/{name}")
        return (await self._client.call(self._stub.GetLease, request)).lease

    async def leases(self) -> list[lpb.Lease]:
        """Return all leases, by name."""
        request = apb.ListLeasesRequest(page_size=1_000)
        page = await self._client.call(self._stub.ListLeases, request)
        return sorted(page.leases, key=lambda lease: lease.name)

    async def until_state(self, name: str, state: str, within_s: float = 15.0) -> lpb.Lease:
        """Wait until a lease is in a state (`active`) and return it."""
        seen: list[lpb.Lease] = []

        async def there() -> bool:
            seen[:] = [await self.lease(name)]
            return state_name(seen[0].state) == state

        try:
            await until(there, within_s, f"{name} is {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen}") from None
        return seen[0]
