"""Clients and electors that close themselves, and a numbered stream of writes to watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Self

from tests.contract.election.stores import TTL_S

from tenure_runtime.clocks import BootClock
from tenure_runtime.election.etcd import EtcdElector
from tenure_runtime.election.etcd_client import EtcdClient, prefix_end
from tenure_runtime.election.etcd_connection import EtcdSettings

PREFIX = b"numbers/"


@asynccontextmanager
async def client_of(settings: EtcdSettings) -> AsyncIterator[EtcdClient]:
    client = EtcdClient(settings, BootClock())
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def elector_of(settings: EtcdSettings, *, ttl_s: int = TTL_S) -> AsyncIterator[EtcdElector]:
    elector = EtcdElector(settings, ttl_s=ttl_s)
    try:
        yield elector
    finally:
        await elector.close()


async def collect(client: EtcdClient, until: bytes, seen: list[bytes]) -> None:
    """Append the value of each change below PREFIX, up to the value `until`."""
    watch = client.watch(PREFIX, prefix_end(PREFIX), start_revision=1)
    async with aclosing(watch) as batches:
        async for events in batches:
            seen.extend(event.kv.value for event in events)
            if seen[-1] == until:
                return


async def write_numbers(client: EtcdClient, numbers: Sequence[int]) -> list[bytes]:
    """Put each number under one key; a repeat after a lost answer shows up as a double."""
    for number in numbers:
        await client.put(PREFIX + b"n", b"%d" % number)
    return [b"%d" % number for number in numbers]


async def arrival(seen: Sequence[bytes], value: bytes) -> None:
    """Wait until the newest value seen is `value`."""
    async with asyncio.timeout(10):
        while not seen or seen[-1] != value:
            await asyncio.sleep(0.02)


def once_each(values: Sequence[bytes]) -> list[bytes]:
    return list(dict.fromkeys(values))


class Gate:
    """A relay in front of a server that can be shut: connections break, new ones are refused."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            behind = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, behind[1]}
        await asyncio.gather(self._copy(reader, behind[1]), self._copy(behind[0], writer))
        self._open -= {writer, behind[1]}

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while chunk := await source.read(65536):
                sink.write(chunk)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.transport.abort()
