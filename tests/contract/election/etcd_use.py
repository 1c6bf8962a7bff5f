"""Clients and electors that close themselves, and a numbered stream of writes to watch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

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


def once_each(values: Sequence[bytes]) -> list[bytes]:
    return list(dict.fromkeys(values))
