"""Simulates leases by the ancestor's rules, instant by instant as its simulated clock did.

At an instant: early ends; ends; starts; arrivals and one scheduling pass; starts again; ends again.
Then on to the next start or end of an entry, arrival or early end.
"""

from __future__ import annotations

from enum import Enum

from tenure_core.planning.haizea.entries import EntryState, HaizeaLease, Kind, State
from tenure_core.planning.haizea.lifecycle import end_entry, start_entry
from tenure_core.planning.haizea.placing import HaizeaWorld
from tenure_core.planning.haizea.scheduling import end_early, schedule_pass


class StopWhen(Enum):
    """When a run ends."""

    ALL_DONE = "all-leases-done"
    BEST_EFFORT_SUBMITTED = "besteffort-submitted"
    BEST_EFFORT_DONE = "besteffort-done"


class HaizeaSimulation:
    """One run; leases keep their own record of what became of them."""

    def __init__(
        self,
        world: HaizeaWorld,
        leases: list[HaizeaLease],
        stop: StopWhen = StopWhen.ALL_DONE,
    ) -> None:
        self.world = world
        self._stop = stop
        self._best_effort = [lease for lease in leases if lease.kind is Kind.BEST_EFFORT]
        self._coming = sorted(leases, key=lambda lease: lease.arrival)

    def run(self) -> None:
        """Go on until nothing is booked, queued or still to come, or nothing can happen."""
        world = self.world
        instant: int | None = self._next(-1)
        while instant is not None:
            world.now = instant
            self._early_ends()
            self._ends()
            self._starts()
            while self._coming and self._coming[0].arrival <= instant:
                self._admit(self._coming.pop(0))
            schedule_pass(world)
            self._starts()
            self._ends()
            instant = None if self._is_over() else self._next(instant)

    def _is_over(self) -> bool:
        if self._stop is StopWhen.BEST_EFFORT_SUBMITTED:
            return not any(lease.kind is Kind.BEST_EFFORT for lease in self._coming)
        if self._stop is StopWhen.BEST_EFFORT_DONE:
            return all(lease.state is State.DONE for lease in self._best_effort)
        return False

    def _admit(self, lease: HaizeaLease) -> None:
        if lease.kind is Kind.ADVANCE and not self.world.rules.accepts_advance:
            lease.state = State.REJECTED
        else:
            self.world.admit(lease)

    def _next(self, now: int) -> int | None:
        instants = [self.world.table.next_change_after(now)]
        if self._coming:
            instants.append(max(now, self._coming[0].arrival))
        instants += [
            at for lease in self.world.leases.values() if (at := _early_end(lease)) is not None
        ]
        return min((at for at in instants if at is not None and at > now), default=None)

    def _early_ends(self) -> None:
        now = self.world.now
        due = [lease for lease in self.world.leases.values() if _early_end(lease) == now]
        for lease in sorted(due, key=_latest_first):
            end_early(self.world, lease)

    def _ends(self) -> None:
        world = self.world
        for entry in [e for e in world.table if e.end == world.now]:
            if entry.state is EntryState.ACTIVE:
                end_entry(world, entry)

    def _starts(self) -> None:
        world = self.world
        for entry in [e for e in world.table if e.start == world.now]:
            if entry.state is EntryState.SCHEDULED:
                start_entry(world, entry)


def _latest_first(lease: HaizeaLease) -> tuple[int, int]:
    run = lease.active_run
    assert run is not None, "a lease that ends early runs"
    return -run.start, lease.id


def _early_end(lease: HaizeaLease) -> int | None:
    """Return when the running lease's work is really done, if before its run is to end."""
    if lease.known_duration is None or lease.state is not State.ACTIVE:
        return None
    run = lease.active_run
    if run is None:
        return None
    end = run.start + lease.known_duration - lease.ran
    return end if end < run.end else None
