"""Faults put into the code on purpose, each with a seed that finds it.

They show that the checkers look where they say. `python -m tests.simulation.mutations` looks for
the first seed that finds each; the seeds are kept here and run by `test_mutations.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

from tests.simulation.checkers import Violated
from tests.simulation.node import SimFence
from tests.simulation.run import STEPS, simulate

from tenure_admission.store import memory as lease_memory
from tenure_admission.store import memory_feed as lease_feed
from tenure_core.enactment import holds, steps
from tenure_core.enactment.facts import Facts
from tenure_core.leases.states import LeaseState
from tenure_core.slots import table as slot_table
from tenure_registry.store import memory_feed as agent_feed
from tenure_registry.store.memory_work import MemoryWork
from tenure_scheduler.clients.slottable import SlottableClient
from tenure_scheduler.entries import SubmitResult, SubmitVerdict
from tenure_scheduler.mirror import PoolMirror
from tenure_slottable.ports import EpochRow
from tenure_slottable.store import memory as slots_memory

Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault: what it is, how it is put in, the seed that finds it, and what that says."""

    name: str
    patch: Patch
    seed: int
    finds: str


def _replacing(owner: Any, name: str, new: Any) -> Patch:
    return lambda: mock.patch.object(owner, name, new)


async def _any_epoch(self: Any, scope: str, epoch: int) -> None:
    known = self.store.epochs.get(scope, EpochRow(0, ""))
    self.store.epochs[scope] = EpochRow(max(epoch, known.epoch), known.holder)


def _raise_only(self: Any, scope: str, epoch: int) -> int:
    self._epochs[scope] = max(epoch, self._epochs.get(scope, 0))
    return epoch


async def _raise_only_later(self: Any, scope: str, epoch: int) -> int:
    return _raise_only(self, scope, epoch)


def _released_at_once(facts: Facts, now: int) -> steps.Step | None:
    text = "Cancelled by its owner."
    return steps._end(facts, LeaseState.CANCELLED, "CANCELLED", text, now, None)


def _submit_later() -> AbstractContextManager[Any]:
    """Have leaders take a booking as made before slottable has answered."""
    real = SlottableClient.submit

    async def submit(self: Any, claim: Any, as_of: int, revision: int, groups: Any) -> Any:
        books = all(hasattr(op, "row") for group in groups for op in group.operations)
        if not books:
            return await real(self, claim, as_of, revision, groups)

        async def later() -> None:
            await asyncio.sleep(1.5)
            try:
                await real(self, claim, as_of, revision, groups)
            except Exception:
                return

        self._late = [*getattr(self, "_late", []), asyncio.create_task(later())]
        made = tuple(
            SubmitVerdict(group.id, "", "", tuple(op.row for op in group.operations))
            for group in groups
        )
        return SubmitResult(made, revision, as_of)

    return mock.patch.object(SlottableClient, "submit", submit)


def _skipping_watch() -> AbstractContextManager[Any]:
    """Have a watch of leases begin one change too late after its token."""
    real = lease_feed.parse_token

    def parse(token: str) -> Any:
        position = real(token)
        return type(position)(position.incarnation, position.tx + 1, position.sequence)

    return mock.patch.object(lease_feed, "parse_token", parse)


def _repeating_watch() -> AbstractContextManager[Any]:
    """Have a watch of reports begin one change too early."""
    real = agent_feed.MemoryFeed.start

    def start(self: Any, token: str) -> int:
        return max(0, real(self, token) - 1)

    return mock.patch.object(agent_feed.MemoryFeed, "start", start)


def _long_fence() -> AbstractContextManager[Any]:
    """Have agents take three times the fence time that the registry told."""
    real = SimFence.renew

    def renew(self: Any, sent_ms: int, fence_ms: int) -> None:
        real(self, sent_ms, 3 * fence_ms)

    return mock.patch.object(SimFence, "renew", renew)


def _kept_charge() -> AbstractContextManager[Any]:
    """Have usage grow with a charge and not shrink with its end."""
    real = lease_memory.usage_deltas

    def deltas(changes: Any) -> Any:
        return real([(before, after) for before, after in changes if after is not None])

    return mock.patch.object(lease_memory, "usage_deltas", deltas)


def _twice() -> AbstractContextManager[Any]:
    real = slot_table.SlotTable.add_node

    def add_node(self: Any, view: Any) -> None:
        doubled = tuple((since, amounts + amounts) for since, amounts in view.capacity)
        real(self, replace(view, capacity=doubled))

    return mock.patch.object(slot_table.SlotTable, "add_node", add_node)


def _one_is_enough() -> AbstractContextManager[Any]:
    """Have a lease count as over with the first of its slots."""

    def under_way(facts: Facts, now: int) -> steps.Step | None:
        ended = {number: rank for number, rank in facts.ranks.items() if rank.ended}
        return steps._all_ended(facts, ended, now) if ended else None

    return mock.patch.object(steps, "_under_way", under_way)


def _not_stored() -> AbstractContextManager[Any]:
    """Have the lease book forget what it acknowledges now and then."""
    real, count = lease_memory.MemoryStore._insert, itertools.count(1)

    def insert(self: Any, draft: Any) -> None:
        if next(count) % 5:
            real(self, draft)

    return mock.patch.object(lease_memory.MemoryStore, "_insert", insert)


_scheduled_in_time = steps._scheduled


def _late(facts: Facts, now: int) -> steps.Step | None:
    return _scheduled_in_time(facts, now - 2_000)


MUTATIONS: Final[tuple[Mutation, ...]] = (
    Mutation(
        "slottable skips the epoch check",
        _replacing(slots_memory._OpenPool, "compare_epoch", _any_epoch),
        8,
        "P5",
    ),
    Mutation(
        "admission skips the epoch check",
        _replacing(lease_memory.MemoryStore, "_raise_epoch", _raise_only),
        30,
        "P5",
    ),
    Mutation(
        "the registry skips the epoch check",
        _replacing(MemoryWork, "fence", _raise_only_later),
        30,
        "P5",
    ),
    Mutation(
        "the slot table counts what a node has twice",
        _twice,
        17,
        "P1",
    ),
    Mutation("commands go out before the commit is acknowledged", _submit_later, 17, "P1"),
    Mutation(
        "a repeated request is a new one",
        _replacing(lease_memory.MemoryStore, "_repeated", lambda _self, _key: None),
        17,
        "P2",
    ),
    Mutation(
        "a start does not wait for whoever still runs there",
        _replacing(PoolMirror, "has_room", lambda _self, _entry, _rows: True),
        12,
        "P1",
    ),
    Mutation(
        "a cancelled lease is over before its agents say so",
        _replacing(steps, "_cancelling", _released_at_once),
        14,
        "P2",
    ),
    Mutation("usage is not given back", _kept_charge, 17, "P6"),
    Mutation("a resume token is one too far", _skipping_watch, 17, "P8"),
    Mutation("a resume token is one too near", _repeating_watch, 17, "P8"),
    Mutation("an agent's fence is longer than it was told", _long_fence, 28, "P7"),
    Mutation("a gang is over when one of its slots is", _one_is_enough, 19, "P2"),
    Mutation("one lease in five is acknowledged and not stored", _not_stored, 17, "P2"),
    Mutation(
        "a hold never ends", _replacing(holds, "is_over", lambda _lease, _now: False), 2, "P2"
    ),
    Mutation("bookings start two seconds late", _replacing(steps, "_scheduled", _late), 37, "P3"),
)


def found_by(mutation: Mutation, seed: int) -> BaseException | None:
    """Return the promise that a seed says is broken, None when it does not find the fault."""
    with mutation.patch():
        error = simulate(seed, STEPS).error
    return error if isinstance(error, Violated) else None


def search(most: int, wanted: str) -> None:
    """Print the first seed that finds each mutation."""
    for mutation in MUTATIONS:
        if wanted not in mutation.name:
            continue
        began = time.perf_counter()
        for seed in range(1, most + 1):
            error = found_by(mutation, seed)
            if error is not None:
                break
        took_s = time.perf_counter() - began
        print(f"{mutation.name}: seed {seed}, {took_s:.1f} s: {str(error)[:150]}", flush=True)


if __name__ == "__main__":
    search(int(sys.argv[1]) if len(sys.argv) > 1 else 60, sys.argv[2] if len(sys.argv) > 2 else "")
