"""What is known of each slot of a lease's present attempt, from the reports of its agent.

Reports may come twice or late; folding them in any order that keeps each agent's own order gives
the same result, and an end absorbs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tenure_core.agents.work import ReportKind, Verb
from tenure_core.enactment.names import verb_of
from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class Report:
    """One report. `run_ms` is how long the work has run so far, suspensions left out."""

    lease: str
    attempt: int
    rank: int
    kind: ReportKind
    command: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    run_ms: Millis = 0


NOT_OF_THE_WORK: Final = frozenset(
    {
        "AGENT_STOPS",
        "ALLOCATION_NOT_FOUND",
        "EXPIRED",
        "FENCED",
        "INTERRUPTED",
        "NOT_STARTED",
        "NOT_WANTED",
        "PREDECESSOR_RUNS",
        "STALE_EPOCH",
        "STALE_SESSION",
    }
)
"""Reasons of agents for an end, or a refused start, that says nothing about the work itself: its
node or its agent failed it. Such an end counts as a loss, not as a failure of the work."""


class RankState(Enum):
    """How a slot is on its node, as far as reports tell."""

    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class Rank:
    """One slot of an attempt. `lost` says that it ended because its node or agent failed it."""

    state: RankState
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    lost: bool = False
    run_ms: Millis = 0

    @property
    def ended(self) -> bool:
        """Say whether nothing of the slot runs any more, for good."""
        return self.state is RankState.ENDED

    @property
    def succeeded(self) -> bool:
        """Say whether the work ended by itself with exit code 0."""
        return self.ended and not self.lost and self.exit_code == 0


_FOLLOWING = {
    ReportKind.STARTED: RankState.RUNNING,
    ReportKind.RESUMED: RankState.RUNNING,
    ReportKind.SUSPENDED: RankState.SUSPENDED,
}


def fold(before: Rank | None, report: Report) -> Rank | None:
    """Return what is known of a slot after one more report of its attempt."""
    if before is not None and before.ended:
        return before
    if report.kind in _FOLLOWING:
        return Rank(_FOLLOWING[report.kind], run_ms=report.run_ms)
    if report.kind is ReportKind.PREPARED:
        return before
    answered = verb_of(report.command)
    if report.kind is ReportKind.REFUSED and answered is not Verb.START and (before or answered):
        # All is as it was: only a START that is refused ends the slot.
        return before
    return Rank(
        RankState.ENDED,
        report.exit_code,
        report.reason or report.kind.value,
        report.message,
        lost=report.kind is ReportKind.LOST or report.reason in NOT_OF_THE_WORK,
        run_ms=report.run_ms,
    )


def first_failure(ranks: Iterable[Rank]) -> Rank | None:
    """Return the first slot that ended otherwise than it should, None when all went well."""
    return next((rank for rank in ranks if rank.ended and not rank.succeeded), None)
