"""Connects to the services where the SDK finds them: by the environment, or the local suite."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tenure.client.discovery import Discovery

if TYPE_CHECKING:
    from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceAsyncStub
    from tenure.admission.v1.identity_pb2_grpc import IdentityServiceAsyncStub
    from tenure.audit.v1.audit_pb2_grpc import AuditServiceAsyncStub
    from tenure.autoscaler.v1.autoscaler_pb2_grpc import AutoscalerServiceAsyncStub
    from tenure.client.exchange import Doorway
    from tenure.notices.v1.notices_pb2_grpc import NoticeServiceAsyncStub
    from tenure.registry.v1.registry_pb2_grpc import RegistryServiceAsyncStub
    from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceAsyncStub
    from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceAsyncStub
    from tenure_runtime.rpc.client import Client

Result = TypeVar("Result")


class Connection:
    """Opens a channel to each service when it is first used."""

    def __init__(self, data: Path | None = None) -> None:
        self._discovery = Discovery(data)
        self._doorway: Doorway | None = None

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._doorway is not None:
            await self._doorway.close()

    def address(self, service: str) -> str:
        """Return where a service is: $TENURE_<SERVICE>_ADDRESS, or the local suite's."""
        return self._discovery.address(service)

    async def client(self, service: str) -> Client:
        """Return the client of a service."""
        from tenure.client.exchange import Doorway

        self._doorway = self._doorway or Doorway(self._discovery)
        return self._doorway.client(service)

    async def admission(self) -> tuple[Client, AdmissionServiceAsyncStub]:
        """Return the client and the stub of admission."""
        from tenure.admission.v1.admission_pb2_grpc import AdmissionServiceStub

        client = await self.client("admission")
        return client, AdmissionServiceStub(client.channel)

    async def identity(self) -> tuple[Client, IdentityServiceAsyncStub]:
        """Return admission's client and the stub of its identity service."""
        from tenure.admission.v1.identity_pb2_grpc import IdentityServiceStub

        client = await self.client("admission")
        return client, IdentityServiceStub(client.channel)

    async def slottable(self) -> tuple[Client, SlotTableServiceAsyncStub]:
        """Return the client and the stub of slottable."""
        from tenure.slottable.v1.slottable_pb2_grpc import SlotTableServiceStub

        client = await self.client("slottable")
        return client, SlotTableServiceStub(client.channel)

    async def scheduler(self) -> tuple[Client, SchedulerServiceAsyncStub]:
        """Return the client and the stub of the scheduler."""
        from tenure.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceStub

        client = await self.client("scheduler")
        return client, SchedulerServiceStub(client.channel)

    async def registry(self) -> tuple[Client, RegistryServiceAsyncStub]:
        """Return the client and the stub of the registry."""
        from tenure.registry.v1.registry_pb2_grpc import RegistryServiceStub

        client = await self.client("registry")
        return client, RegistryServiceStub(client.channel)

    async def audit(self, service: str) -> tuple[Client, AuditServiceAsyncStub]:
        """Return the client of a service, and the stub of its audit trail."""
        from tenure.audit.v1.audit_pb2_grpc import AuditServiceStub

        client = await self.client(service)
        return client, AuditServiceStub(client.channel)

    async def notices(self) -> tuple[Client, NoticeServiceAsyncStub]:
        """Return the client of admission, and the stub of its notices."""
        from tenure.notices.v1.notices_pb2_grpc import NoticeServiceStub

        client = await self.client("admission")
        return client, NoticeServiceStub(client.channel)

    async def autoscaler(self) -> tuple[Client, AutoscalerServiceAsyncStub]:
        """Return the client and the stub of the autoscaler."""
        from tenure.autoscaler.v1.autoscaler_pb2_grpc import AutoscalerServiceStub

        client = await self.client("autoscaler")
        return client, AutoscalerServiceStub(client.channel)


def run(command: Callable[[Connection], Awaitable[Result]]) -> Result:
    """Run an asynchronous command with a connection that is closed at its end."""

    async def connected() -> Result:
        async with Connection() as connection:
            return await command(connection)

    return asyncio.run(connected())


async def all_pages(call: Callable[[str], Awaitable[Any]], items: str, limit: int) -> list[Any]:
    """Return up to `limit` items of a paged list; `call` takes a page token."""
    found: list[Any] = []
    token = ""
    while len(found) < limit:
        page = await call(token)
        found.extend(getattr(page, items))
        token = page.next_page_token
        if not token:
            break
    return found[:limit]
