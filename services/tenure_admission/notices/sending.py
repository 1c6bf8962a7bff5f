"""Delivers what was written: takes a few, sends them at once, notes what became of each.

At least once: a sender that dies after a receiver took a notice and before that was noted leaves it
to be sent again a minute later, under the same id. Nothing is sent inside a transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from tenure_admission import metrics
from tenure_admission.notices.values import Channel, Delivery, DeliveryFailed
from tenure_core.timebase import DAY_MS, Millis
from tenure_runtime.telemetry.logging import get_logger

AT_ONCE: Final = 16
ROUNDS_MAX: Final = 20
RETENTION_MS: Final[Millis] = 14 * DAY_MS
ENDING_LEAD_MAX_MS: Final[Millis] = DAY_MS


class Outbox(Protocol):
    """What was written and waits to be delivered."""

    async def write_ending(self, lead_max_ms: Millis) -> int:
        """Write notices for leases that end soon; return how many."""
        ...

    async def take(self, limit: int) -> list[Delivery]:
        """Return deliveries that are due, so that nobody else tries them for a while."""
        ...

    async def delivered(self, delivery: Delivery) -> None:
        """Note that the receiver took it."""
        ...

    async def failed(self, delivery: Delivery, error: str, *, for_good: bool) -> bool:
        """Note a failed attempt; return whether it is given up."""
        ...

    async def forget(self, retention_ms: Millis) -> int:
        """Forget a portion of what is older than the retention; return how many."""
        ...


class Sender:
    """Delivers notices by their channels; replicas share the work."""

    def __init__(self, outbox: Outbox, channels: Mapping[str, Channel]) -> None:
        self._outbox = outbox
        self._channels = channels

    async def run_once(self) -> int:
        """Deliver what is due, at most 320; return how many were tried."""
        total = 0
        for _ in range(ROUNDS_MAX):
            taken = await self._outbox.take(AT_ONCE)
            await asyncio.gather(*(self._deliver(each) for each in taken))
            total += len(taken)
            if len(taken) < AT_ONCE:
                break
        return total

    async def write_ending(self) -> int:
        """Write notices for leases whose time is over soon; return how many."""
        return await self._outbox.write_ending(ENDING_LEAD_MAX_MS)

    async def forget(self) -> int:
        """Forget old notices that wait no more; return how many."""
        return await self._outbox.forget(RETENTION_MS)

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            await self._send(delivery)
        except DeliveryFailed as error:
            dead = await self._outbox.failed(delivery, str(error), for_good=error.for_good)
            if dead:
                get_logger().warning(
                    "notice.undeliverable",
                    notice=delivery.id,
                    channel=delivery.channel,
                    owner=delivery.owner,
                    error=str(error),
                )
            metrics.NOTICES.add(1, delivery.channel, "dead" if dead else "failed")
        else:
            await self._outbox.delivered(delivery)
            metrics.NOTICES.add(1, delivery.channel, "delivered")

    async def _send(self, delivery: Delivery) -> None:
        channel = self._channels.get(delivery.channel)
        if channel is None:
            raise DeliveryFailed("this suite has no mail server", for_good=True)
        if not delivery.target:
            raise DeliveryFailed("its owner is not told this way any more", for_good=True)
        await channel.send(delivery)
