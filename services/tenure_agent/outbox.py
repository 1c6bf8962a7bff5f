"""What is on its way to the registry: reports that are durable and not yet acknowledged.

Decides that a report leaves only after it is durable, in batches, and again on every new stream
until it is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from tenure_agent.ledger import Ledger
from tenure_agent.work import Report

BATCH_MAX: Final = 500
GATHER_S: Final = 0.003
"""How long a report waits for others: the start and the end of short work share all costs."""


class Outbox:
    """Hands the ledger's reports to whoever sends them. `changed` is set when there are some."""

    def __init__(self, ledger: Ledger, *, gather_s: float = GATHER_S) -> None:
        self._ledger = ledger
        self._gather_s = gather_s
        self._dirty = asyncio.Event()
        self._published = ledger.last_sequence
        self._sending: deque[Report] = deque()
        self.changed = asyncio.Event()
        self.emptied = asyncio.Event()
        self._note_emptied()

    def wrote(self) -> None:
        """Say that the ledger has new reports."""
        self.emptied.clear()
        self._dirty.set()

    def repeat(self, report: Report) -> None:
        """Send a report again, because its command came again."""
        self._sending.append(report)
        self.changed.set()

    async def run(self) -> None:
        """Publish reports as they become durable, until cancelled.

        Waits a moment first, so that reports of the same burst share a flush and a message.
        """
        while True:
            await self._dirty.wait()
            await asyncio.sleep(self._gather_s)
            self._dirty.clear()
            upto = self._ledger.last_sequence
            await self._ledger.durable()
            self._publish(upto)
            await self._ledger.compact_if_grown()

    def _publish(self, upto: int) -> None:
        for sequence in range(self._published + 1, upto + 1):
            report = self._ledger.unacknowledged.get(sequence)
            if report is not None:
                self._sending.append(report)
        self._published = upto
        self.changed.set()

    def restart(self) -> None:
        """Begin anew on a new stream: all that is durable and not acknowledged goes out again."""
        unacknowledged = self._ledger.unacknowledged
        self._sending = deque(
            unacknowledged[sequence]
            for sequence in sorted(unacknowledged)
            if sequence <= self._published
        )
        self.changed.set()

    def take(self) -> list[Report]:
        """Return the next batch to send, empty when there is nothing."""
        batch = [self._sending.popleft() for _ in range(min(BATCH_MAX, len(self._sending)))]
        if not self._sending:
            self.changed.clear()
        return batch

    def acknowledge(self, sequence: int) -> None:
        """Forget reports up to `sequence`."""
        self._ledger.acknowledge(sequence)
        self._note_emptied()

    def _note_emptied(self) -> None:
        if not self._ledger.unacknowledged:
            self.emptied.set()
