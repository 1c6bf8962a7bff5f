"""Who may take capacity from whom, in which order victims are taken, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tenure_core.leases.lease import Advance, BestEffort, Immediate
from tenure_core.planning.preempt_how import PreemptHow
from tenure_core.planning.snapshot import LeaseView
from tenure_core.timebase import Millis


@runtime_checkable
class PreemptionPolicy(Protocol):
    """Decides on one pair of leases at a time."""

    def may_preempt(self, preemptor: LeaseView, victim: LeaseView, at: Millis) -> bool:
        """Say whether `preemptor` may take what `victim` holds, from the instant `at`."""
        ...

    def reluctance(self, victim: LeaseView, at: Millis) -> tuple[int, ...]:
        """Return the sort key by which victims are taken, lowest first; ties go by id."""
        ...

    def how(self, victim: LeaseView, at: Millis) -> PreemptHow:
        """Return what becomes of the victim."""
        ...

    def may_drop(self, victim: LeaseView, at: Millis) -> bool:
        """Say whether the victim may lose its progress when its suspended state is in the way."""
        ...


@dataclass(frozen=True, slots=True)
class NoPreemption:
    """Nobody takes anything from anybody."""

    def may_preempt(self, preemptor: LeaseView, victim: LeaseView, at: Millis) -> bool:  # noqa: ARG002
        """Return False."""
        return False

    def reluctance(self, victim: LeaseView, at: Millis) -> tuple[int, ...]:  # noqa: ARG002
        """Return the arrival; never asked."""
        return (victim.arrival,)

    def how(self, victim: LeaseView, at: Millis) -> PreemptHow:  # noqa: ARG002
        """Return REQUEUE; never asked."""
        return PreemptHow.REQUEUE

    def may_drop(self, victim: LeaseView, at: Millis) -> bool:  # noqa: ARG002
        """Return False; never asked."""
        return False


@dataclass(frozen=True, slots=True)
class BookedPreemptBestEffort:
    """Advance and immediate leases preempt preemptible best-effort ones, the newest run first.

    It cannot loop: the preemptor is never best-effort and never a victim. `run_min_ms` protects a
    run until it has lasted so long; `evictions_max` is how often a lease may be preempted at all,
    None for no limit. A victim is suspended when its driver can, else requeued. When no suspension
    makes enough room, because of what suspended leases keep, and `drops` allows it, victims are
    requeued without their progress. Without `suspends` nobody is suspended.
    """

    run_min_ms: Millis = 0
    evictions_max: int | None = None
    drops: bool = True
    suspends: bool = True

    def may_preempt(self, preemptor: LeaseView, victim: LeaseView, at: Millis) -> bool:
        """Compare the kinds of terms, the victim's preemptibility, its run and its evictions."""
        return (
            isinstance(preemptor.spec.terms, Advance | Immediate)
            and isinstance(victim.spec.terms, BestEffort)
            and victim.spec.preemptible
            and (self.evictions_max is None or victim.preemptions < self.evictions_max)
            and (victim.run_started is None or at - victim.run_started >= self.run_min_ms)
        )

    def reluctance(self, victim: LeaseView, at: Millis) -> tuple[int, ...]:  # noqa: ARG002
        """Return what has not begun first, then lower priority, later start, later arrival."""
        began = victim.run_started is not None
        return (began, victim.spec.priority, -(victim.run_started or 0), -victim.arrival)

    def how(self, victim: LeaseView, at: Millis) -> PreemptHow:
        """Suspend what has run and can be suspended; requeue the rest."""
        ran = victim.run_started is not None and at > victim.run_started
        can = self.suspends and victim.suspendable and ran
        return PreemptHow.SUSPEND if can else PreemptHow.REQUEUE

    def may_drop(self, victim: LeaseView, at: Millis) -> bool:  # noqa: ARG002  # the port's
        """Return what the policy was told."""
        return self.drops
