"""Servers of the simulated network: real servicers behind the real edge, found by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

import grpc
from tests.simulation.network import FINE, Status
from tests.simulation.world import Host
from tests.support.virtual_loop import PROCESS, Process

from tenure_runtime.rpc import edge
from tenure_runtime.rpc.gate import Gate
from tenure_runtime.rpc.identity import Keyring, Permissions

if TYPE_CHECKING:
    from tests.simulation.streams import Stream


class Handlers:
    """Takes the methods that generated code registers, as a server does."""

    def __init__(self) -> None:
        self.methods: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, _: object) -> None:
        """The registered ones say it all."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Take the methods of one service."""
        self.methods.update({f"/{service}/{name}": each for name, each in handlers.items()})


class Server:
    """One process that serves; it lives and dies with it."""

    def __init__(
        self,
        host: Host,
        process: Process,
        service: str,
        keyring: Keyring,
        permissions: Permissions,
        add: Callable[[Any], None],
    ) -> None:
        handlers = Handlers()
        add(handlers)
        bounds = edge.Edge(service, Gate(keyring), permissions, write_timeout_s=1e9)
        self.host = host
        self.process = process
        self.methods = {
            name: edge._wrap(bounds, name, handler) for name, handler in handlers.methods.items()
        }


class Directory:
    """Which servers answer under which name: one a replica."""

    def __init__(self) -> None:
        self.servers: dict[str, dict[str, Server]] = {}

    def register(self, service: str, server: Server) -> None:
        """Have a server found; it is gone when its process is."""
        found = self.servers.setdefault(service, {})
        found[server.host.name] = server

    def hosts(self, service: str) -> list[str]:
        """Return the hosts that serve something."""
        return list(self.servers.get(service, ()))


class Context_:
    """What a handler knows of its call (`grpc.aio.ServicerContext`)."""

    def __init__(self, metadata: Iterable[tuple[str, str]], stream: Stream | None = None) -> None:
        self._metadata = tuple(metadata)
        self._stream = stream
        self.status: Status = FINE

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def peer(self) -> str:
        return "sim:0"

    def time_remaining(self) -> None:
        return None

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing: tuple[Any, ...] = ()
    ) -> None:
        self.status = (code, details, trailing)
        raise grpc.aio.AbortError

    async def read(self) -> Any:
        assert self._stream is not None
        return await self._stream.up.take()

    async def write(self, message: Any) -> None:
        assert self._stream is not None
        stream = self._stream
        stream.server_process.check()
        stream.send_down(message)
        await asyncio.sleep(0)


def served_by(process: Process) -> Context:
    """Return a context with nothing of the caller in it."""
    context = Context()
    context.run(PROCESS.set, process)
    return context
