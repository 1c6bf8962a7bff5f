"""The SDK of Tenure for Python: `with tenure.client.connect() as plane`.

`connect` is for programs that wait, `connect_async` for asyncio. Both find the services in the same
way (`discovery`). docs/sdk.md shows all of it, and its examples are run by a test.

Names are loaded when they are first used: `remote_call` runs on nodes, once a call, and needs none
of the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.client.aio import AsyncPlane
    from tenure.client.async_lease import AsyncLease, Explanation
    from tenure.client.blocking import Lease, Plane
    from tenure.client.connecting import connect, connect_async
    from tenure.client.discovery import Discovery
    from tenure.client.errors import (
        Conflict,
        DomainError,
        Exhausted,
        Forbidden,
        Invalid,
        LeaseEnded,
        NotFound,
        Unauthenticated,
        Unavailable,
        WatchExpired,
        WrongState,
    )
    from tenure.client.executor import LeaseExecutor
    from tenure.client.forecast import Forecast
    from tenure.client.lease_info import LeaseInfo, LeaseTable
    from tenure.client.watching import Change
    from tenure_core.leases.states import LeaseState
    from tenure_runtime.rpc.transport import TlsFiles

_HOME = {
    "aio": ("AsyncPlane",),
    "async_lease": ("AsyncLease", "Explanation"),
    "blocking": ("Lease", "Plane"),
    "connecting": ("connect", "connect_async"),
    "discovery": ("Discovery",),
    "errors": (
        "Conflict",
        "DomainError",
        "Exhausted",
        "Forbidden",
        "Invalid",
        "LeaseEnded",
        "NotFound",
        "Unauthenticated",
        "Unavailable",
        "WatchExpired",
        "WrongState",
    ),
    "executor": ("LeaseExecutor",),
    "forecast": ("Forecast",),
    "lease_info": ("LeaseInfo", "LeaseTable"),
    "watching": ("Change",),
}
_MODULE_OF = {name: f"tenure.client.{home}" for home, names in _HOME.items() for name in names} | {
    "LeaseState": "tenure_core.leases.states",
    "TlsFiles": "tenure_runtime.rpc.transport",
}

__all__ = [
    "AsyncLease",
    "AsyncPlane",
    "Change",
    "Conflict",
    "Discovery",
    "DomainError",
    "Exhausted",
    "Explanation",
    "Forbidden",
    "Forecast",
    "Invalid",
    "Lease",
    "LeaseEnded",
    "LeaseExecutor",
    "LeaseInfo",
    "LeaseState",
    "LeaseTable",
    "NotFound",
    "Plane",
    "TlsFiles",
    "Unauthenticated",
    "Unavailable",
    "WatchExpired",
    "WrongState",
    "connect",
    "connect_async",
]


def __getattr__(name: str) -> object:
    """Load a name from its module."""
    if name not in _MODULE_OF:
        raise AttributeError(f"tenure.client has no {name}")
    found: object = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = found
    return found
