"""Which waiting leases must wait for others, and which of them wait in vain."""

from __future__ import annotations

from tenure_core.leases.lease import Dependency, DependencyCondition, Lease
from tenure_core.leases.states import ENDED, WAITING, LeaseState
from tenure_core.planning.snapshot import Blocked
from tenure_core.timebase import Millis
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.ports import LeaseBook

LOOKUPS_MAX = 50
"""How many leases of other pools are looked up in one cycle."""

AGAIN_MS: Millis = 2_000
"""How long the state of another pool's lease is taken as known."""


class Dependencies:
    """Knows the states of the leases that a pool's leases depend on."""

    def __init__(self, mirror: PoolMirror, book: LeaseBook) -> None:
        self._mirror = mirror
        self._book = book
        self._foreign: dict[str, tuple[LeaseState | None, Millis]] = {}

    async def refresh(self, now: Millis) -> None:
        """Look up what this pool's feed does not tell, a bounded number at a time."""
        wanted = {
            dependency.lease
            for name in self._mirror.unplanned.apart
            if (entry := self._mirror.leases[name]).lease.state in WAITING
            for dependency in entry.lease.spec.dependencies
            if self._is_unknown(dependency.lease, now)
        }
        for name in sorted(wanted)[:LOOKUPS_MAX]:
            self._foreign[name] = (await self._book.state_of(name), now)

    def _is_unknown(self, lease: str, now: Millis) -> bool:
        if lease in self._mirror.leases or lease in self._mirror.ended:
            return False
        state, at = self._foreign.get(lease, (LeaseState.PENDING, -AGAIN_MS))
        return state not in ENDED and now - at >= AGAIN_MS

    def _state(self, lease: str) -> LeaseState | None:
        entry = self._mirror.leases.get(lease)
        if entry is not None:
            return entry.lease.state
        if lease in self._mirror.ended:
            return self._mirror.ended[lease]
        return self._foreign.get(lease, (LeaseState.PENDING, 0))[0]

    def blocked(self, lease: Lease) -> Blocked | None:
        """Return what a lease waits for, None when it may be placed."""
        for dependency in lease.spec.dependencies:
            if not self._is_met(dependency):
                return Blocked("DEPENDENCY_PENDING", f"Waits for lease {dependency.lease} to end.")
        return None

    def failure(self, lease: Lease) -> str | None:
        """Return why a lease can never start because of another, None when it may yet."""
        for dependency in lease.spec.dependencies:
            state = self._state(dependency.lease)
            if state is None:
                return f"Lease {dependency.lease}, on which it depends, does not exist."
            wants_success = dependency.condition is DependencyCondition.SUCCEEDED
            if wants_success and state in ENDED and state is not LeaseState.DONE:
                return f"Lease {dependency.lease}, on which it depends, ended as {state.value}."
        return None

    def _is_met(self, dependency: Dependency) -> bool:
        state = self._state(dependency.lease)
        if dependency.condition is DependencyCondition.ENDED:
            return state in ENDED
        return state is LeaseState.DONE
