"""What a service needs to keep a trail: its calls on the server, its loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from tenure.audit.v1.audit_pb2_grpc import add_AuditServiceServicer_to_server
from tenure_core.audit.retention import TrailLimits
from tenure_runtime.audit.reading import TrailReader
from tenure_runtime.audit.retention import Retention
from tenure_runtime.audit.servicer import SERVICE, AuditServicer, Shown, as_json
from tenure_runtime.audit.trail import Sealer
from tenure_runtime.clocks import SystemClock
from tenure_runtime.postgres.pool import Pool
from tenure_runtime.process import run_loop
from tenure_runtime.rpc.server import RpcServer

SEAL_PERIOD_S: Final = 1.0
RETENTION_PERIOD_S: Final = 600.0


async def keep_trail(
    server: RpcServer, pool: Pool, limits: TrailLimits, shown: Shown = as_json
) -> Coroutine[Any, Any, None]:
    """Begin the trail, serve it beside the service's own calls, and return its loops as one.

    Await it after `migrate` and before the server starts; allow `servicer.PERMISSIONS`.
    """
    sealer = Sealer(pool)
    await sealer.run_once()
    server.add(add_AuditServiceServicer_to_server, AuditServicer(TrailReader(pool), shown), SERVICE)
    retention = Retention(pool, limits, SystemClock())

    async def loops() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_loop("audit.seal", sealer.run_once, period_s=SEAL_PERIOD_S))
            dropping = run_loop("audit.retention", retention.run_once, period_s=RETENTION_PERIOD_S)
            group.create_task(dropping)

    return loops()
