"""Real gRPC servers for tests: `async with serving(…) as served: await served.client("user")`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from tenure_runtime.rpc.client import Client, connect
from tenure_runtime.rpc.draining import Draining
from tenure_runtime.rpc.gate import Gate
from tenure_runtime.rpc.identity import Keyring, Permissions, Role, create_key
from tenure_runtime.rpc.server import RpcServer, ServerOptions

ALL_ROLES = frozenset(Role)


@dataclass(frozen=True)
class Served:
    """A running server, the port it listens on, and a key for each role and for all together."""

    server: RpcServer
    port: int
    keys: dict[str, str]
    keyring: Keyring
    _stack: AsyncExitStack = field(repr=False)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def client(self, role: str = "all", **options: Any) -> Client:
        """Return a client with the key of `role` (`user`, …, `all`); it is closed at the end."""
        client = connect(self.target, api_key=self.keys[role], **options)
        return await self._stack.enter_async_context(client)

    async def bearer(self, credential: str, **options: Any) -> Client:
        """Return a client that shows the credential; it is closed at the end."""
        client = connect(self.target, api_key=credential, **options)
        return await self._stack.enter_async_context(client)


@asynccontextmanager
async def serving(
    register: Callable[[Any, grpc.aio.Server], None],
    servicer: object,
    service: str,
    *,
    permissions: Permissions | None = None,
    methods: Iterable[str] = (),
    draining: Draining | None = None,
    options: ServerOptions | None = None,
    like: Served | None = None,
    also: Iterable[tuple[Callable[[Any, grpc.aio.Server], None], object, str]] = (),
    gate: Callable[[Keyring], Gate] = Gate,
) -> AsyncIterator[Served]:
    """Serve one servicer on a free port of 127.0.0.1.

    `service` is its full name (`tenure.admission.v1.AdmissionService`). Give its real
    `permissions`, or `methods` that every role may call. A server `like` another accepts the same
    keys. `also` are further services, `gate` makes the gate of the keyring.
    """
    keys, keyring = (like.keys, like.keyring) if like else _new_keys()
    allowed = permissions or Permissions.of(service, dict.fromkeys(methods, ALL_ROLES))
    server = RpcServer(
        options or ServerOptions(service.split(".")[1]),
        keyring=keyring,
        permissions=allowed,
        draining=draining,
        gate=gate(keyring),
    )
    for each in ((register, servicer, service), *also):
        server.add(*each)
    port = await server.start()
    async with AsyncExitStack() as stack:
        try:
            yield Served(server, port, keys, keyring, stack)
        finally:
            await server.stop(0.2)


def _new_keys() -> tuple[dict[str, str], Keyring]:
    keys, entries = {}, []
    for name, roles in {**{str(role): {role} for role in Role}, "all": set(Role)}.items():
        keys[name], entry = create_key(name, roles)
        entries.append(entry)
    return keys, Keyring(entries)
