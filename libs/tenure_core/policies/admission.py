"""Which leases a pool takes at all, whatever its capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tenure_core.leases.lease import Advance
from tenure_core.planning.snapshot import LeaseView
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a lease is not taken: a stable UPPER_SNAKE code, and a sentence for its owner."""

    reason: str
    message: str


@runtime_checkable
class AdmissionPolicy(Protocol):
    """Looks at each lease once, when it is planned for the first time."""

    def refusal(self, lease: LeaseView, now: Millis) -> Refusal | None:
        """Return why the lease is refused for good, None when it is taken."""
        ...


@dataclass(frozen=True, slots=True)
class AcceptAll:
    """Everything is taken."""

    def refusal(self, lease: LeaseView, now: Millis) -> Refusal | None:  # noqa: ARG002  # the port's
        """Return None."""
        return None


@dataclass(frozen=True, slots=True)
class NoAdvance:
    """Nobody books ahead at a time of their own."""

    def refusal(self, lease: LeaseView, now: Millis) -> Refusal | None:  # noqa: ARG002  # the port's
        """Refuse advance leases."""
        if isinstance(lease.spec.terms, Advance):
            return Refusal("ADVANCE_NOT_ACCEPTED", "The pool takes no advance leases.")
        return None
