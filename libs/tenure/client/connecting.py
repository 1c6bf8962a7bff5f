"""Opens the services: `connect` for programs that wait, `connect_async` for asyncio."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tenure.client.aio import AsyncPlane
from tenure.client.blocking import Plane
from tenure.client.discovery import Discovery
from tenure_runtime.rpc.transport import TlsFiles


def connect_async(
    folder: Path | str | None = None,
    *,
    addresses: Mapping[str, str] | None = None,
    api_key: str | None = None,
    tls: TlsFiles | None = None,
    timeout_s: float = 10.0,
) -> AsyncPlane:
    """Return the services for asyncio; nothing is sent before the first call.

    Without arguments they are found through the environment, or as the suite that `tenure up` runs
    here; `folder` names the folder of another one. `addresses` maps services to host:port.
    `timeout_s` is the longest that one call may take with all its repeats.
    """
    discovery = Discovery(
        Path(folder) if folder is not None else None, addresses or {}, api_key, tls
    )
    return AsyncPlane(discovery, timeout_s=timeout_s)


def connect(
    folder: Path | str | None = None,
    *,
    addresses: Mapping[str, str] | None = None,
    api_key: str | None = None,
    tls: TlsFiles | None = None,
    timeout_s: float = 10.0,
) -> Plane:
    """Return the services for programs that wait; the arguments are those of `connect_async`."""
    return Plane(
        connect_async(folder, addresses=addresses, api_key=api_key, tls=tls, timeout_s=timeout_s)
    )
