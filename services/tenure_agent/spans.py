"""One span for each run, in the trace of the lease whose command began it.

Decides what the run's span is called and carries. Held open in a task of its own, because it ends
in another call than it began; without a trace that came in there is none and this costs nothing.
"""

from __future__ import annotations

import asyncio

from tenure_agent.work import Command, Event, Key
from tenure_runtime.telemetry.spans import valid_traceparent
from tenure_runtime.telemetry.tracing import current_traceparent, span


class Spans:
    """The open spans by allocation."""

    def __init__(self) -> None:
        self._ends: dict[Key, asyncio.Future[Event]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, command: Command) -> str:
        """Open the span of a run; return the traceparent that its work continues, or ""."""
        if not valid_traceparent(command.trace_parent):
            return ""
        loop = asyncio.get_running_loop()
        key = command.key
        end: asyncio.Future[Event] = loop.create_future()
        with span(
            "agent.start",
            parent=command.trace_parent,
            lease=key.lease,
            attempt=key.attempt,
            rank=key.rank,
        ):
            traceparent = current_traceparent()
            self._ends[key] = end
            task = loop.create_task(_hold(key, end))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return traceparent

    def end(self, event: Event) -> None:
        """Close the span of a run that has ended."""
        end = self._ends.pop(event.key, None)
        if end is not None and not end.done():
            end.set_result(event)

    def close(self) -> None:
        """Close what is open: this process ends, the work may go on."""
        for task in self._tasks:
            task.cancel()


async def _hold(key: Key, end: asyncio.Future[Event]) -> None:
    with span("agent.run", lease=key.lease, attempt=key.attempt, rank=key.rank) as recording:
        event = await end
        recording.set_attribute("tenure.reason", event.reason)
        if event.exit_code is not None:
            recording.set_attribute("process.exit.code", event.exit_code)
