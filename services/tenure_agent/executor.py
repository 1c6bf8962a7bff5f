"""Carries out what the registry tells: each command once in effect, in order, and answered.

Decides what is refused (an older epoch, another session, an expired span, what no longer makes
sense), what is a repeat, and which report a driver's event becomes. Commands go through one queue:
a group of them is judged in order, made durable with one flush, then enacted in order. Enacting
never waits, so a long stop holds nobody up.

Nothing is begun while contact is unproven: work would be over its fence the moment it starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tenure_agent.fence import Fence
from tenure_agent.inbox import Received, Wanted
from tenure_agent.ledger import Allocation, Ledger
from tenure_agent.outbox import Outbox
from tenure_agent.ports import Driver
from tenure_agent.reporting import Reporting
from tenure_agent.secret_values import opened
from tenure_agent.spans import Spans
from tenure_agent.work import Command, Key, Kind, Launch, Observed, State, Verb
from tenure_core.timebase import Clock
from tenure_runtime.sealing import SealingKey, Unreadable
from tenure_runtime.telemetry.logging import get_logger

# More than a registry queues for one stream: the answer to the first beat, without which nothing
# begins, comes behind the commands that it had ready.
QUEUE_MAX: Final = 10_000
GROUP_MAX: Final = 256
Act = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What an executor works with. `bare` drives allocations without a command."""

    ledger: Ledger
    outbox: Outbox
    fence: Fence
    process: Driver
    bare: Driver
    boot_clock: Clock
    reporting: Reporting
    spans: Spans = field(default_factory=Spans)
    sealing_key: SealingKey = field(default_factory=SealingKey.made)


class Executor:
    """The one place that changes what runs on this agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ledger = parts.ledger
        self._reporting = parts.reporting
        self._queue: asyncio.Queue[Received | Wanted] = asyncio.Queue(QUEUE_MAX)
        self._session = ""
        self._stopping = False
        # Started before a crash, but never begun: what to do is up to the registry.
        self._unbegun: set[Key] = set()
        for driver in (parts.process, parts.bare):
            driver.listen(parts.reporting.on_event)

    def observed(self) -> list[Observed]:
        """Return what is true here, for the hello."""
        return [each for each in self._ledger.observed() if each.key not in self._unbegun]

    def running_count(self) -> int:
        """Return how many allocations live here."""
        return len(self._ledger.living())

    def recover(self) -> None:
        """Take up what an earlier process of this agent left. Call once, before connecting."""
        living = self._ledger.living()
        for bare, driver in ((True, self._parts.bare), (False, self._parts.process)):
            mine = [each for each in living if each.bare is bare]
            # A bare one that was not reported as running never ran: there is nothing to find.
            findable = [a for a in mine if not bare or a.state is not State.STARTING]
            known = {each.key: each.keep_on_loss for each in findable}
            unbegun = driver.recover(known)
            self._unbegun |= unbegun | {each.key for each in mine if each.key not in known}
        for allocation in living:
            if allocation.key not in self._unbegun:
                self._repeat_pending(allocation)
        get_logger().info("agent.recovered", living=len(living), unbegun=len(self._unbegun))

    def _repeat_pending(self, allocation: Allocation) -> None:
        """Enact again what was accepted and has no answer: a signal twice is a signal once."""
        for id_, verb in allocation.pending:
            if verb is not Verb.START:
                self._signal(Command(id_, verb, "", 0, "", allocation.key, reason="REPEATED"))

    def begin_session(self, session: str) -> None:
        """Note the session of the stream now open; what other streams left in the queue is void."""
        self._session = session

    async def submit(self, item: Received | Wanted) -> None:
        """Queue what the stream said; a full queue holds the stream back."""
        await self._queue.put(item)

    async def run(self) -> None:
        """Carry out what comes, until cancelled."""
        while True:
            group = [await self._queue.get()]
            await self._parts.fence.proven()
            while len(group) < GROUP_MAX and not self._queue.empty():
                group.append(self._queue.get_nowait())
            await self.carry_out(group)

    async def carry_out(self, group: list[Received | Wanted]) -> None:
        """Judge a group in order, make that durable, then enact it in order."""
        acts: list[Act] = []
        for item in group:
            if item.stream_session != self._session:
                continue  # its stream has ended; what still holds comes again on the next
            if isinstance(item, Wanted):
                acts += self._judge_wanted(item)
            else:
                acts += self._judge(item)
        await self._ledger.durable()
        for act in acts:
            act()

    def stop_all(self, reason: str) -> None:
        """End everything that lives here, each with its own grace, and begin nothing more."""
        self._stopping = True
        for allocation in self._ledger.living():
            if allocation.key in self._unbegun:
                self._abandon(allocation.key, reason)
            else:
                driver = self._driver(allocation)
                driver.stop(allocation.key, grace_ms=allocation.grace_ms, reason=reason)

    async def idle(self) -> None:
        """Return when nothing lives here; for an agent that takes nothing new."""
        if self._ledger.living():
            self._reporting.idle.clear()
            await self._reporting.idle.wait()

    # The wanted set.

    def _judge_wanted(self, wanted: Wanted) -> list[Act]:
        keys = {each.key: each.state for each in wanted.allocations}
        acts: list[Act] = []
        for allocation in self._ledger.living():
            if allocation.key in keys:
                continue
            if allocation.key in self._unbegun:
                self._abandon(allocation.key, "NOT_WANTED")
            else:
                acts.append(self._stop_act(allocation, "NOT_WANTED"))
        for key, state in keys.items():
            if key not in self._ledger.allocations and state in (State.RUNNING, State.SUSPENDED):
                self._reporting.report(
                    Kind.ENDED,
                    key,
                    reason="ALLOCATION_NOT_FOUND",
                    message="This agent knows of no such allocation; its state on disk is new.",
                )
        return acts

    def _stop_act(self, allocation: Allocation, reason: str) -> Act:
        key, grace_ms = allocation.key, allocation.grace_ms
        return lambda: self._driver(allocation).stop(key, grace_ms=grace_ms, reason=reason)

    def _abandon(self, key: Key, reason: str) -> None:
        """Report the end of what never began."""
        self._unbegun.discard(key)
        self._reporting.end_unbegun(key, reason)

    # Commands.

    def _judge(self, received: Received) -> list[Act]:
        command = received.command
        if self._is_repeat(command):
            return self._judge_repeat(received)
        if command.session != self._session:
            return self._refuse(command, "STALE_SESSION", "The command is for another session.")
        if received.problem:
            return self._refuse(command, "INVALID_COMMAND", received.problem)
        known = self._ledger.epochs.get(command.scope, 0)
        if command.epoch < known:
            message = f"Epoch {command.epoch} of {command.scope} is older than {known}."
            return self._refuse(command, "STALE_EPOCH", message)
        self._ledger.raise_epoch(command.scope, command.epoch)
        if self._expired(received):
            return self._refuse(command, "EXPIRED", "The command came too late.")
        match command.verb:
            case Verb.PREPARE:
                return self._judge_prepare(command)
            case Verb.START:
                return self._judge_start(received)
            case Verb.STOP:
                return self._judge_stop(command)
            case Verb.SUSPEND | Verb.RESUME:
                return self._judge_pause(command)

    def _is_repeat(self, command: Command) -> bool:
        """Say whether it was judged before; what was refused may be asked for again.

        But a START: whoever hears of its refusal takes it for the end of the attempt.
        """
        if command.id not in self._ledger.answers:
            return False
        answer = self._ledger.answers[command.id]
        refused = answer is not None and answer.kind is Kind.REFUSED
        return command.verb is Verb.START or not refused

    def _expired(self, received: Received) -> bool:
        return self._parts.boot_clock.now_ms() > received.before_ms

    def _judge_repeat(self, received: Received) -> list[Act]:
        answer = self._ledger.answers[received.command.id]
        if answer is not None:
            return [lambda: self._parts.outbox.repeat(answer)]
        key = received.command.key
        if received.command.verb is Verb.START and key in self._unbegun:
            self._unbegun.discard(key)
            return [lambda: self._start(received)]
        return []  # under way: its report comes

    def _refuse(self, command: Command, reason: str, message: str) -> list[Act]:
        self._reporting.report(
            Kind.REFUSED, command.key, command_id=command.id, reason=reason, message=message
        )
        return []

    def _judge_prepare(self, command: Command) -> list[Act]:
        """Nothing needs to be brought yet: images come with their own issue."""
        self._reporting.report(Kind.PREPARED, command.key, command_id=command.id)
        return []

    def _judge_start(self, received: Received) -> list[Act]:
        command = received.command
        refusal = self._start_refusal(command.key)
        if refusal is not None:
            return self._refuse(command, *refusal)
        self._ledger.accept(command)
        return [lambda: self._start(received)]

    def _start_refusal(self, key: Key) -> tuple[str, str] | None:
        if self._stopping:
            return ("AGENT_STOPS", "The agent is about to end; start it elsewhere.")
        present = self._ledger.allocations.get(key)
        if present is not None:
            state = present.state
            return ("ALREADY_STARTED", f"Another command started it; it is {state}.")
        for other in self._ledger.of_lease(key.lease):
            if other.key.attempt > key.attempt:
                return ("STALE_ATTEMPT", f"Attempt {other.key.attempt} was here already.")
            if other.key.attempt < key.attempt and not other.ended:
                return ("PREDECESSOR_RUNS", f"Attempt {other.key.attempt} has not ended.")
        return None

    def _judge_stop(self, command: Command) -> list[Act]:
        allocation = self._ledger.allocations.get(command.key)
        if allocation is None or allocation.ended:
            self._reporting.report_end_again(command.key, allocation, command.id)
            return []
        if command.key in self._unbegun:
            self._ledger.accept(command)
            self._abandon(command.key, command.reason or "STOPPED")
            return []
        self._ledger.accept(command)
        return [lambda: self._signal(command)]

    def _judge_pause(self, command: Command) -> list[Act]:
        allocation = self._ledger.allocations.get(command.key)
        if allocation is None:
            return self._refuse(command, "ALLOCATION_NOT_FOUND", "No such allocation is here.")
        if allocation.ended or command.key in self._unbegun:
            return self._refuse(command, "ALLOCATION_ENDED", "It has ended.")
        self._ledger.accept(command)
        return [lambda: self._signal(command)]

    # Acts.

    def _start(self, received: Received) -> None:
        command = received.command
        launch = command.launch or Launch()
        allocation = self._ledger.allocations[command.key]
        try:
            launch = opened(launch, command.key.lease, self._parts.sealing_key)
        except Unreadable as error:
            self._refuse(command, "SECRETS_NOT_OPENED", f"Its secrets cannot be opened: {error}.")
            return
        try:
            traceparent = self._parts.spans.begin(command)
            self._driver(allocation).start(
                command.key, launch, before_ms=received.before_ms, traceparent=traceparent
            )
        except OSError as error:
            self._refuse(
                command, "START_FAILED", f"The agent could not start it: {error.strerror}."
            )

    def _signal(self, command: Command) -> None:
        allocation = self._ledger.allocations[command.key]
        driver = self._driver(allocation)
        match command.verb:
            case Verb.SUSPEND:
                driver.suspend(command.key)
            case Verb.RESUME:
                driver.resume(command.key)
            case Verb.STOP:
                asked = command.grace_ms
                grace_ms = allocation.grace_ms if asked is None else asked
                driver.stop(command.key, grace_ms=grace_ms, reason=command.reason)

    def _driver(self, allocation: Allocation) -> Driver:
        return self._parts.bare if allocation.bare else self._parts.process
