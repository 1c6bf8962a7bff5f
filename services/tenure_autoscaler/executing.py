"""Carries out what is written down: creates and removals, each resumable at every step.

    create   REQUESTED ─ provider.create(token) → BOOTING
    remove   DRAINING ─ RetireNode(if unbooked) ─ nothing runs any more → REMOVING ─ provider.remove

Every state is in the database before the step that follows from it, so whoever leads next repeats
at most the last step, and each is a repeat for its receiver: the provider knows the token, the
slot table knows that the node is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from tenure_autoscaler.ports import FleetStore, Nodes, Occupancy
from tenure_autoscaler.providers.port import (
    MachineSpec,
    ProvidedMachine,
    Provider,
    ProviderRefusedError,
)
from tenure_autoscaler.records import FleetMemory, GroupClaim, MachineRecord
from tenure_autoscaler.values import MachineState
from tenure_core.autoscaling.provider_errors import (
    CLEAN,
    ProviderErrorClass,
    after_failure,
    error_class,
)
from tenure_core.autoscaling.reconciliation import Grace
from tenure_core.errors import DomainError, Stale
from tenure_core.timebase import Clock

ANSWER_S: Final = 30.0
"""How long a provider may take to answer; after that its answer is unclear."""

AT_ONCE: Final = 8
TIMED_OUT: Final = "TIMED_OUT"


class LeadershipOverError(Exception):
    """The leader's own deadline has passed: it must do nothing more."""


class Executor:
    """Carries out one run's steps for one group."""

    def __init__(
        self,
        claim: GroupClaim,
        memory: FleetMemory,
        *,
        owner: str,
        store: FleetStore,
        provider: Provider,
        nodes: Nodes,
        occupancy: Occupancy,
        clock: Clock,
        leads: Callable[[], bool],
        grace: Grace,
    ) -> None:
        self._claim = claim
        self.memory = memory
        self._owner = owner
        self._store = store
        self._provider = provider
        self._nodes = nodes
        self._occupancy = occupancy
        self._clock = clock
        self._leads = leads
        self._grace = grace
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._memory_lock = asyncio.Lock()
        self.results: dict[str, str] = {}

    async def run(
        self,
        records: Sequence[MachineRecord],
        strays: Sequence[ProvidedMachine],
        *,
        fresh: frozenset[str],
    ) -> None:
        """Do the next steps of all records, and remove strays. `fresh`: tokens ordered just now.

        Raises Stale and LeadershipOverError after every other step has ended.
        """
        named = {record.machine for record in records if record.live}
        steps: list[Awaitable[None]] = [
            self._remove_stray(stray, twin=stray.machine in named) for stray in strays
        ]
        now_ms = self._clock.now_ms()
        for record in records:
            if record.state is MachineState.DRAINING:
                steps.append(self._drain(record))
            elif record.retry_ms > now_ms:
                continue
            elif record.state is MachineState.REMOVING:
                steps.append(self._remove(record))
            elif record.waits_for_provider:
                steps.append(self._create(record, fresh=record.token in fresh))
        ended = await asyncio.gather(*map(self._limited, steps), return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException):
                raise error

    async def _limited(self, step: Awaitable[None]) -> None:
        async with self._slots:
            await step

    def _check(self) -> None:
        if not self._leads():
            raise LeadershipOverError

    async def _create(self, record: MachineRecord, *, fresh: bool) -> None:
        now_ms = self._clock.now_ms()
        if not self.memory.backoff.open_at(now_ms):
            if fresh:
                # Never asked for: another refusal came first, and the next decision looks anew.
                await self._note(record.turned(MachineState.REMOVED, now_ms, "BACKED_OFF"))
            return
        spec = MachineSpec(
            record.machine, self._owner, record.token, record.group, record.pool,
            record.amounts, self._claim.epoch, record.application,
        )  # fmt: skip
        self._check()
        try:
            async with asyncio.timeout(ANSWER_S):
                provider_id = await self._provider.create(spec)
        except (ProviderRefusedError, TimeoutError) as error:
            await self._refused(record, _code(error))
            return
        made = replace(record, provider_id=provider_id, retry_ms=0)
        async with self._memory_lock:
            self.memory = replace(self.memory, backoff=CLEAN)
            await self._note(made.turned(MachineState.BOOTING, self._clock.now_ms()))

    async def _refused(self, record: MachineRecord, code: str) -> None:
        """Note what a refusal of a create means."""
        cause, now_ms = error_class(code), self._clock.now_ms()
        async with self._memory_lock:
            backoff = after_failure(self.memory.backoff, cause, now_ms=now_ms)
            self.memory = replace(self.memory, backoff=backoff)
            if cause is ProviderErrorClass.UNCLEAR:
                # It may have been made: the next listing says, and only then it is asked again.
                looked_ms = now_ms + self._grace.unanswered_ms
                again_ms = max(backoff.until_ms, looked_ms)
                if self._provider.capabilities.creates_once:
                    again_ms = backoff.until_ms
                after = replace(record, retry_ms=again_ms, reason=code)
            elif record.retry_ms:
                # An earlier unclear request may still have its effect: keep the token in mind.
                gone = replace(record, removed_ms=now_ms, retry_ms=0)
                after = gone.turned(MachineState.REMOVING, now_ms, code)
            else:
                after = record.turned(MachineState.REMOVED, now_ms, code)
            await self._note(after, f"{cause.value}:{code}")

    async def _drain(self, record: MachineRecord) -> None:
        """Close the node, look whether anything runs, and only then go on to the removal."""
        self._check()
        served = bool(record.incarnation)
        closed = await self._nodes.retire(self._claim, record.machine)
        running = await self._running(record)
        if not closed and (served or running is not None):
            back = MachineState.RUNNING if served else MachineState.BOOTING
            kept = replace(record, idle_since_ms=None)
            await self._note(kept.turned(back, self._clock.now_ms(), "BOOKED"), "KEPT:BOOKED")
            return
        if running:
            self.results[record.machine] = "WAITS:STILL_RUNNING"
            return
        now_ms = self._clock.now_ms()
        going = replace(record, removed_ms=now_ms).turned(MachineState.REMOVING, now_ms)
        await self._note(going)
        await self._remove(going)

    async def _running(self, record: MachineRecord) -> int | None:
        """Return how much an agent of this life runs, None when none is there."""
        try:
            incarnation, running = await self._occupancy.running(record.machine)
        except DomainError as error:
            if isinstance(error, Stale):
                raise
            # Unknown is not empty: what may run is waited for.
            return 1
        return None if incarnation in ("", record.before) else running

    async def _remove(self, record: MachineRecord) -> None:
        if not record.provider_id:
            return
        self._check()
        wait_ms = self._grace.lingering_ms
        word = "REMOVED"
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._provider.remove(record.provider_id)
        except (ProviderRefusedError, TimeoutError) as error:
            word = f"{error_class(_code(error)).value}:{_code(error)}"
        await self._note(replace(record, retry_ms=self._clock.now_ms() + wait_ms), word)

    async def _remove_stray(self, stray: ProvidedMachine, *, twin: bool) -> None:
        """Remove what has our mark and no record; the node of a twin belongs to its other."""
        self._check()
        if stray.machine and not twin and not await self._is_empty(stray.machine):
            self.results[stray.provider_id] = "STRAY_KEPT"
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._provider.remove(stray.provider_id)
            self.results[stray.provider_id] = "STRAY_REMOVED"
        except (ProviderRefusedError, TimeoutError) as error:
            self.results[stray.provider_id] = _code(error)

    async def _is_empty(self, machine: str) -> bool:
        if not await self._nodes.retire(self._claim, machine):
            return False
        _, running = await self._occupancy.running(machine)
        return running == 0

    async def _note(self, record: MachineRecord, word: str = "") -> None:
        await self._store.write(self._claim, [record], self.memory)
        self.results[record.machine] = word or record.state.value


def _code(error: ProviderRefusedError | TimeoutError) -> str:
    return error.code if isinstance(error, ProviderRefusedError) else TIMED_OUT
