"""The next step of one lease, decided anew from facts each time, so that any leader may take over.

Nothing is remembered between calls: what was commanded shows in the lease's state, what came of it
in the reports, what shall come of it in the reservations. A run that ends where a RESIDENT begins
is to be suspended; one that ends before its owed time is over was preempted and waits again; any
other is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tenure_core.enactment import holds
from tenure_core.enactment.facts import RESUMED_MS_MIN, Facts, Step, grace_ms
from tenure_core.enactment.ranks import Rank, RankState, first_failure
from tenure_core.leases.lease import BestEffort, OnFailure, Placement
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.timebase import Millis

S = LeaseState

_OWN_STOPS: Final = frozenset(
    {"TIME_OVER", "PREEMPTED", "NODE_LOST", "WORK_FAILED", "BOOKING_LOST"}
)
"""Reasons with which a leader tells work to stop, a cancellation apart."""

UNCOUNTED: Final = frozenset({"PREEMPTED", "NODE_LOST", "START_MISSED", "BOOKING_LOST"})
"""Reasons for another attempt that do not count against `max_attempts`."""


def next_step(facts: Facts, now: Millis) -> Step | None:
    """Return what is to be done for the lease at `now`, None when there is nothing.

    O(slots of the lease).
    """
    if holds.is_over(facts.lease, now):
        return holds.expired(facts.lease, now)
    match facts.lease.state:
        case S.SCHEDULED | S.PREPARING:
            return _scheduled(facts, now)
        case S.STARTING:
            return _under_way(facts, now) or _starting(facts, now)
        case S.ACTIVE | S.MIGRATING:
            return _under_way(facts, now) or _active(facts, now)
        case S.SUSPENDING:
            return _under_way(facts, now) or _advanced(facts, now, RankState.SUSPENDED, S.SUSPENDED)
        case S.SUSPENDED:
            return _under_way(facts, now) or _suspended(facts, now)
        case S.RESUMING:
            return _under_way(facts, now) or _advanced(facts, now, RankState.RUNNING, S.ACTIVE)
        case S.STOPPING:
            return _stopping(facts, now)
        case S.CANCELLING:
            return _cancelling(facts, now)
        case _:
            return _leftovers(facts)


def runs_of(facts: Facts) -> list[ReservationView]:
    """Return the present or next RUN reservation of each slot of the attempt, by rank.

    What an earlier attempt left is none of it: its replacement was recorded, but never committed.
    """
    by_rank: dict[int, ReservationView] = {}
    for row in sorted(facts.rows, key=lambda r: (r.rank, r.interval.start)):
        if row.kind is ReservationKind.RUN and row.attempt == facts.lease.attempt:
            by_rank[row.rank] = row
    return [by_rank[rank] for rank in sorted(by_rank)]


def _scheduled(facts: Facts, now: Millis) -> Step | None:
    runs = runs_of(facts)
    if 0 < facts.asked_slots == len(runs) != facts.lease.spec.node_count:
        # The slots that its owner gives up or adds are changed; that is yet to be recorded.
        return None
    if len(runs) != facts.lease.spec.node_count:
        return _again(facts, "BOOKING_LOST", "Its booking was not found; it is planned anew.")
    if min(row.interval.start for row in runs) > now or facts.lease.hold_expires is not None:
        return None
    if max(r.interval.end for r in runs) <= now:
        return _missed(facts, now)
    if not facts.has_room or any(row.displaced for row in runs):
        return None
    where = tuple(Placement(row.rank, row.node, row.interval) for row in runs)
    changed = where if where != facts.lease.placements else ()
    return Step(facts.lease.id, S.STARTING, "DUE", "Its time has come.", placements=changed)


def _missed(facts: Facts, now: Millis) -> Step:
    text = "Its nodes did not become free while it was booked."
    if isinstance(facts.lease.spec.terms, BestEffort):
        return _again(facts, "START_MISSED", text)
    return _end(facts, S.FAILED, "START_MISSED", text, now, None)


def _under_way(facts: Facts, now: Millis) -> Step | None:
    """Return the step when slots ended or were lost, None while all known ones go on."""
    ranks = with_losses(facts)
    ended = {number: rank for number, rank in ranks.items() if rank.ended}
    if not ended:
        return None
    stopped = next((rank for rank in ended.values() if rank.reason == "STOPPED"), None)
    if stopped is not None:
        return _stop(facts, _stopped_for(stopped), "Its work was stopped.")
    if len(ended) == facts.lease.spec.node_count:
        return _all_ended(facts, ended, now)
    failure = first_failure(ended.values())
    if failure is None:
        return None
    reason = "NODE_LOST" if failure.lost else "WORK_FAILED"
    return _stop(facts, reason, _failure_text(failure), failure.exit_code)


def _stopped_for(rank: Rank) -> str:
    """Return why a slot was stopped that nobody is known to have stopped.

    Its agent says which reason the stop gave. A leader that sent it may be gone before it recorded
    so; any other stop is the host's or the agent's own, and the node failed the work.
    """
    return rank.message if rank.message in _OWN_STOPS else "NODE_LOST"


def with_losses(facts: Facts) -> dict[int, Rank]:
    """Return the slots' state, with those on lost nodes ended although nobody said so."""
    ranks = dict(facts.ranks)
    for placement in facts.lease.placements:
        known = ranks.get(placement.rank)
        if placement.node in facts.gone and (known is None or not known.ended):
            ranks[placement.rank] = Rank(RankState.ENDED, reason="AGENT_LOST", lost=True)
    return ranks


def _all_ended(facts: Facts, ranks: Mapping[int, Rank], now: Millis) -> Step:
    failure = first_failure(ranks[number] for number in sorted(ranks))
    if failure is None:
        text = "All its work ended with exit code 0."
        done = _end(facts, S.DONE, "COMPLETED", text, now, 0)
        return replace(done, started=_began(facts, ranks, now))
    if failure.lost:
        return _again(facts, "NODE_LOST", _failure_text(failure))
    return replace(_failed(facts, failure, now), started=_began(facts, ranks, now))


def _began(facts: Facts, ranks: Mapping[int, Rank], now: Millis) -> Millis | None:
    """Return when work began that was over before it was recorded to run, None for other work."""
    ran = [rank.run_ms for rank in ranks.values() if rank.exit_code is not None]
    return now - max(ran) if ran and facts.lease.state is S.STARTING else None


def _failed(facts: Facts, failure: Rank, now: Millis) -> Step:
    text = _failure_text(failure)
    spec = facts.lease.spec
    if spec.on_failure is OnFailure.RESTART and facts.lease.failures + 1 < spec.max_attempts:
        return _again(facts, "RESTARTING", text, failure.exit_code)
    return _end(facts, S.FAILED, "WORK_FAILED", text, now, failure.exit_code)


def _failure_text(failure: Rank) -> str:
    if failure.lost:
        return failure.message or "Its node was lost."
    if failure.exit_code is None:
        return failure.message or f"Its work could not be run: {failure.reason}."
    return failure.message or f"Its work ended with exit code {failure.exit_code}."


def _again(facts: Facts, reason: str, message: str, exit_code: int | None = None) -> Step:
    lease = facts.lease
    return Step(
        lease.id,
        S.QUEUED,
        reason,
        message,
        release=True,
        remaining_ms=lease.spec.duration_ms,
        exit_code=exit_code,
        preempted=reason == "PREEMPTED",
        failed=reason not in UNCOUNTED,
    )


def _end(
    facts: Facts,
    state: LeaseState,
    reason: str,
    message: str,
    now: Millis,
    exit_code: int | None,
) -> Step:
    return Step(
        facts.lease.id,
        state,
        reason,
        message,
        release=True,
        ended=now,
        exit_code=exit_code,
    )


def _stop(facts: Facts, reason: str, message: str, exit_code: int | None = None) -> Step:
    return Step(facts.lease.id, S.STOPPING, reason, message, exit_code=exit_code)


def _advanced(facts: Facts, now: Millis, wanted: RankState, state: LeaseState) -> Step | None:
    """Return the step to `state` once every slot that has not ended is as wanted."""
    ranks = facts.ranks
    count = facts.lease.spec.node_count
    if len(ranks) != count or any(r.state is not wanted for r in ranks.values() if not r.ended):
        return None
    if state is S.SUSPENDED:
        ran = now - facts.run_started if facts.run_started is not None else 0
        owed = facts.lease.remaining_ms or facts.lease.spec.duration_ms
        remaining = max(RESUMED_MS_MIN, owed - ran)
        text = "Its work is stopped and keeps its progress."
        return Step(
            facts.lease.id,
            state,
            "PREEMPTED",
            text,
            release_past=True,
            remaining_ms=remaining,
            preempted=True,
        )
    started = now if facts.lease.state is S.STARTING else None
    text = "Runs on all its nodes."
    return Step(facts.lease.id, state, "RUNNING", text, release_past=True, started=started)


def _starting(facts: Facts, now: Millis) -> Step | None:
    runs = runs_of(facts)
    if not runs:
        return _stop(facts, "BOOKING_LOST", "Its booking was not found; it is planned anew.")
    if now >= max(row.interval.end for row in runs):
        return _stop(facts, "NODE_LOST", "Its agents did not say that it began before its end.")
    return _advanced(facts, now, RankState.RUNNING, S.ACTIVE)


def _active(facts: Facts, now: Millis) -> Step | None:
    lease = facts.lease
    runs = runs_of(facts)
    if not runs:
        return _stop(facts, "PREEMPTED", "Its capacity was given to another lease.")
    end = min(row.interval.end for row in runs)
    leaving = [
        row.interval.start
        for row in facts.rows
        if row.kind in (ReservationKind.SUSPEND, ReservationKind.RESIDENT)
        # One that lies before the run is where the lease resumed from.
        and row.interval.start >= end
    ]
    if leaving:
        if now < min(leaving):
            return None
        return Step(lease.id, S.SUSPENDING, "PREEMPTED", "Makes room for another lease.")
    owed = lease.remaining_ms or lease.spec.duration_ms
    is_cut = facts.run_started is not None and end < min(r.interval.start for r in runs) + owed
    if now < end - grace_ms(lease):
        return None
    if is_cut:
        return _stop(facts, "PREEMPTED", "Its capacity was given to another lease.")
    return _stop(facts, "TIME_OVER", "Its time is used up.")


def _suspended(facts: Facts, now: Millis) -> Step | None:
    lease = facts.lease
    if not facts.rows:
        return _stop(facts, "PREEMPTED", "What it kept on its nodes had to be given up.")
    runs = [r for r in facts.rows if r.kind in (ReservationKind.RUN, ReservationKind.RESUME)]
    due = [row.interval.start for row in runs if row.interval.end > now]
    if runs and not due:
        # Nobody acted while it was booked to run: it is planned anew from where it is kept.
        return Step(lease.id, S.SUSPENDED, lease.reason, lease.message, release_past=True)
    if not due or min(due) > now or not facts.has_room:
        return None
    return Step(lease.id, S.RESUMING, "DUE", "Its capacity is free again.")


def _stopping(facts: Facts, now: Millis) -> Step | None:
    lease = facts.lease
    ranks = with_losses(facts)
    if any(not ranks[p.rank].ended if p.rank in ranks else True for p in lease.placements):
        return None
    if lease.reason == "TIME_OVER":
        done = all(rank.succeeded for rank in ranks.values())
        text = "All its work ended with exit code 0." if done else "Its time was used up."
        reason = "COMPLETED" if done else "TIME_OVER"
        return _end(facts, S.DONE, reason, text, now, 0 if done else None)
    if lease.reason in UNCOUNTED:
        return _again(facts, lease.reason, lease.message)
    if lease.exit_code:
        failure = Rank(RankState.ENDED, lease.exit_code, "EXITED", lease.message)
        return _failed(facts, failure, now)
    failure = first_failure(ranks[number] for number in sorted(ranks)) or Rank(RankState.ENDED)
    return _failed(facts, failure, now)


def _cancelling(facts: Facts, now: Millis) -> Step | None:
    lease = facts.lease
    ranks = with_losses(facts)
    if lease.hold_expires is None and any(
        p.rank not in ranks or not ranks[p.rank].ended for p in lease.placements
    ):
        return None
    text = lease.message or "Cancelled by its owner."
    return _end(facts, S.CANCELLED, lease.reason or "CANCELLED", text, now, None)


def _leftovers(facts: Facts) -> Step | None:
    """Give back what a lease that holds nothing still has in the table."""
    if not facts.rows:
        return None
    lease = facts.lease
    return Step(lease.id, lease.state, lease.reason, lease.message, release=True)
