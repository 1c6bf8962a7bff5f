"""A TCP proxy that can cut every connection, as networks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class CuttingProxy:
    """Passes bytes on to one address until it is told to cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.accepted = 0
        self.refusing = False

    async def cut(self) -> None:
        """Cut all connections now."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass one connection on."""
        if self.refusing:
            writer.transport.abort()
            return
        self.accepted += 1
        back, onward = await asyncio.open_connection(*self._target)
        self._writers |= {writer, onward}
        try:
            await asyncio.gather(self._pass(reader, onward), self._pass(back, writer))
        finally:
            self._writers -= {writer, onward}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def cutting_proxy(target: str) -> AsyncIterator[CuttingProxy]:
    """Run a proxy in front of `target` for the length of a block."""
    proxy = CuttingProxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.cut()
