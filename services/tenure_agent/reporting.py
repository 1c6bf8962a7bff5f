"""Turns what drivers see into reports, and sees that every command gets exactly one.

Decides which report an event becomes, and what the commands that were still waiting are told when
the allocation they were for has ended.
"""

from __future__ import annotations

import asyncio

from tenure_agent.ledger import Allocation, Ledger
from tenure_agent.outbox import Outbox
from tenure_agent.spans import Spans
from tenure_agent.work import Event, Key, Kind, Report, State, Verb
from tenure_core.timebase import Clock

# Ends of work that never began: the START is refused, nothing has had an effect.
_NEVER_BEGAN = frozenset({"EXPIRED", "FENCED", "START_FAILED"})


class Reporting:
    """Writes reports into the ledger. `prefix` makes their ids unique beyond this agent."""

    def __init__(
        self, ledger: Ledger, outbox: Outbox, clock: Clock, *, prefix: str, spans: Spans
    ) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._clock = clock
        self._prefix = prefix
        self._spans = spans
        self.idle = asyncio.Event()

    def report(
        self,
        kind: Kind,
        key: Key,
        *,
        command_id: str = "",
        exit_code: int | None = None,
        reason: str = "",
        message: str = "",
        run_ms: int = 0,
    ) -> None:
        """Write one report; it leaves once it is durable."""
        sequence = self._ledger.last_sequence + 1
        self._ledger.report(
            Report(
                sequence=sequence,
                id=f"{self._prefix}.{sequence}",
                kind=kind,
                key=key,
                command_id=command_id,
                exit_code=exit_code,
                reason=reason,
                message=message,
                wall_ms=self._clock.now_ms(),
                run_ms=run_ms,
            )
        )
        self._outbox.wrote()

    def on_event(self, event: Event) -> None:
        """Report what a driver saw; what changes nothing and answers nothing is not reported."""
        allocation = self._ledger.allocations.get(event.key)
        if allocation is None or allocation.ended:
            return
        match event.state:
            case State.RUNNING:
                self._on_running(allocation, event)
            case State.SUSPENDED:
                self._on_suspended(allocation, event)
            case State.ENDED:
                self._on_ended(allocation, event)
            case State.STARTING:
                pass

    def _on_running(self, allocation: Allocation, event: Event) -> None:
        if allocation.state is State.STARTING:
            self._note_started(allocation)
            return
        resume = allocation.first_pending(Verb.RESUME)
        if resume or allocation.state is State.SUSPENDED:
            self.report(Kind.RESUMED, event.key, command_id=resume, run_ms=event.run_ms)

    def _note_started(self, allocation: Allocation) -> None:
        command_id = allocation.first_pending(Verb.START)
        self.report(Kind.STARTED, allocation.key, command_id=command_id)

    def _on_suspended(self, allocation: Allocation, event: Event) -> None:
        suspend = allocation.first_pending(Verb.SUSPEND)
        if allocation.state is State.STARTING:
            self._note_started(allocation)
        if suspend or allocation.state is not State.SUSPENDED:
            self.report(Kind.SUSPENDED, event.key, command_id=suspend, run_ms=event.run_ms)

    def _on_ended(self, allocation: Allocation, event: Event) -> None:
        self._spans.end(event)
        pending = list(allocation.pending)
        start = allocation.first_pending(Verb.START)
        if event.exit_code is None and event.reason in _NEVER_BEGAN and start:
            self.report(
                Kind.REFUSED,
                event.key,
                command_id=start,
                reason=event.reason,
                message=event.message,
            )
        else:
            if start and event.exit_code is not None and event.reason != "START_FAILED":
                # It began and ended while nobody listened.
                self._note_started(allocation)
            self._end(allocation, event)
        self._answer_waiting(event.key, pending)
        if not self._ledger.living():
            self.idle.set()

    def _end(self, allocation: Allocation, event: Event) -> None:
        answered = allocation.first_pending(Verb.START) or allocation.first_pending(Verb.STOP)
        self.report(
            Kind.ENDED,
            event.key,
            command_id=answered,
            exit_code=event.exit_code,
            reason=event.reason,
            message=event.message,
            run_ms=event.run_ms,
        )

    def _answer_waiting(self, key: Key, waiting: list[tuple[str, Verb]]) -> None:
        for command_id, verb in waiting:
            if self._ledger.answers[command_id] is not None:
                continue
            if verb is Verb.STOP:
                self.report_end_again(key, self._ledger.allocations.get(key), command_id)
            else:
                self.report(
                    Kind.REFUSED,
                    key,
                    command_id=command_id,
                    reason="ALLOCATION_ENDED",
                    message="It ended before this could be done.",
                )

    def report_end_again(self, key: Key, allocation: Allocation | None, command_id: str) -> None:
        """Answer a stop of what has ended, or was never here and now never will be."""
        known = allocation is not None
        self.report(
            Kind.ENDED,
            key,
            command_id=command_id,
            exit_code=allocation.exit_code if allocation else None,
            reason=(allocation.reason if allocation else "") or "NOT_STARTED",
            message="" if known else "It was never started here and will not be.",
            run_ms=allocation.run_ms if allocation else 0,
        )

    def end_unbegun(self, key: Key, reason: str) -> None:
        """Report the end of what was accepted and never begun, and answer what waits for it."""
        allocation = self._ledger.allocations[key]
        self._on_ended(allocation, Event(key, State.ENDED, reason=reason, message="Never begun."))
