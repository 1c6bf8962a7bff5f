"""Follows one lease through its life, over any number of connections."""

import asyncio
import sys
from contextlib import aclosing

from tenure.client import connect_async


async def main() -> None:
    async with connect_async() as plane:
        seen = []
        lease = await plane.submit(command=[sys.executable, "-c", "pass"], cpu="0.2")
        changes = plane.watch(lease_id=lease.id, relist=True)
        if not (await lease.refresh()).ended:
            async with aclosing(changes), asyncio.timeout(60):
                async for change in changes:
                    seen.append(change.lease.state.name.lower())
                    if change.lease.ended:
                        break
        print("its last state:", (await lease.refresh()).state.name.lower())


asyncio.run(main())
