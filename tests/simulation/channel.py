"""Channels of the simulated network, as generated stubs and our client use them."""

from __future__ import annotations

from typing import Any

from tests.simulation.calls import UnaryMethod
from tests.simulation.network import Network
from tests.simulation.servers import Directory, Server
from tests.simulation.streams import StreamMethod
from tests.simulation.world import Host


class Channel:
    """A `grpc.aio` channel from one process to the replicas of a service."""

    def __init__(self, network: Network, directory: Directory, here: Host, service: str) -> None:
        self.network = network
        self.directory = directory
        self.here = here
        self.service = service

    def unary_unary(self, path: str, *coders: Any, **named: Any) -> UnaryMethod:
        return UnaryMethod(self, path, named, coders)

    def unary_stream(self, path: str, *coders: Any, **named: Any) -> StreamMethod:
        return StreamMethod(self, path, named, coders)

    stream_stream = unary_stream
    stream_unary = unary_stream

    async def close(self, _: float | None = None) -> None:
        """Nothing is held open here."""

    def pick(self) -> Server | None:
        """Return a replica to ask: any that is thought to run, None when there is none."""
        servers = self.directory.servers.get(self.service, {})
        alive = [each for each in servers.values() if each.process.alive]
        return self.network.world.rng("pick").choice(alive) if alive else None
