"""Shows what the work of a lease prints."""

from __future__ import annotations

import sys

from tenure.registry.v1 import registry_pb2 as gpb
from tenure_cli.connection import Connection
from tenure_cli.leases import full
from tenure_cli.output import print_json_line


async def stream_logs(
    connection: Connection,
    lease: str,
    rank: int,
    *,
    attempt: int = 0,
    offset: int = 0,
    follow: bool = False,
    output: str = "table",
) -> int:
    """Write one slot's output to stdout as it comes; return how many bytes there were.

    As JSON it is one object a part: its rank, where it begins, and the bytes as text.
    """
    client, stub = await connection.registry()
    request = gpb.StreamLogsRequest(
        lease=full(lease), rank=rank, attempt=attempt, offset=offset, follow=follow
    )
    written = 0
    async with client.stream(stub.StreamLogs, request) as parts:
        async for part in parts:
            if output == "json":
                text = part.data.decode("utf-8", errors="replace")
                print_json_line({"rank": rank, "offset": part.offset, "text": text})
            else:
                sys.stdout.buffer.write(part.data)
                sys.stdout.buffer.flush()
            written += len(part.data)
    return written
