"""Snapshot → plan → charge → commit: the part of the cycle that books.

The plan is made by `tenure_core.planning`; here it is charged first and committed then. A group
whose charge is refused is not committed; one that is refused by the slot table is uncharged. Both
are planned again by a later cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from tenure_core.leases.states import HOLDING, WAITING, LeaseState
from tenure_core.planning import plan as p
from tenure_core.planning.planner import run_pass
from tenure_core.planning.snapshot import Blocked
from tenure_core.policies.bundle import Policies
from tenure_core.timebase import Millis
from tenure_runtime.telemetry.tracing import span, span_in_each
from tenure_scheduler.dependencies import Dependencies
from tenure_scheduler.enacting import Enactor
from tenure_scheduler.entries import (
    LeaseEntry,
    Prediction,
    SubmitGroup,
    Transition,
)
from tenure_scheduler.kept_book import KeptBook
from tenure_scheduler.metering import Factors
from tenure_scheduler.metrics import step
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.outcome import PlanOutcome, booked_text, given_up_for, predictions_of
from tenure_scheduler.poolclock import PoolClock
from tenure_scheduler.ports import Claim, Neighbours
from tenure_scheduler.refusals import REFUSED, Refusals
from tenure_scheduler.rows import row_operation
from tenure_scheduler.snapshots import Snapshots

PREDICTIONS_MAX: Final = 10_000

QUOTA_RETRY_MS: Millis = 5_000
"""How long a lease whose charge was refused is left out of the plan."""

TELL_AGAIN_MS: Millis = 10_000
"""How often all predictions are told anew: well below what admission takes for silence (30 s)."""

TELL_POSITIONS_MS: Millis = 1_000
"""How often it is told that leases moved up in the queue: one start moves all that wait."""


@dataclass(frozen=True, slots=True)
class PoolRules:
    """What is asked anew in each cycle: how a pool is planned, and whether it takes new leases."""

    policies: Callable[[], Policies]
    cordoned: Callable[[], bool] = lambda: False


class Booker:
    """Plans, charges and commits for one leader of one pool."""

    def __init__(
        self,
        claim: Claim,
        mirror: PoolMirror,
        clock: PoolClock,
        neighbours: Neighbours,
        enactor: Enactor,
        rules: PoolRules,
        factors: Callable[[Policies], Factors],
    ) -> None:
        self._claim = claim
        self._mirror = mirror
        self._clock = clock
        self._neighbours = neighbours
        self._enactor = enactor
        self._rules = rules
        self._dependencies = Dependencies(mirror, neighbours.leases)
        self.snapshots = Snapshots(
            mirror, self._dependencies, rules.cordoned, lambda: factors(rules.policies())
        )
        self._kept = KeptBook(mirror, self.snapshots)
        self._told: dict[str, Prediction] = {}
        self._told_all_at: Millis = 0
        self._told_positions_at: Millis = 0
        self._refusals = Refusals()

    async def run_once(self) -> PlanOutcome:
        """Plan once, and make it so."""
        now = self._clock.now_ms()
        await self._dependencies.refresh(now)
        hopeless = self._hopeless()
        pool = self._claim.pool
        with step(pool, "plan"), span("scheduler.plan", pool=pool) as traced:
            book = self._kept.take(now, self._rules.policies())
            run_pass(book)
            made = book.plan()
            traced.set_attribute("groups", len(made.groups))
        outcome = PlanOutcome(made, predictions_of(made))
        charges, groups = self._charges(made)
        for transition in hopeless:
            charges.pop(transition.lease, None)
        before = {name: self._mirror.leases[name] for name in charges}
        with step(pool, "charge"):
            refused = await self._charge([*hopeless, *charges.values()], self._news(outcome))
        kept = [group for group in groups if not (set(group.leases) & refused)]
        with step(pool, "commit"):
            failed = await self._commit(kept, now)
        outcome.held = frozenset(group.id for group in kept) - failed
        await self._settle(outcome, before, refused)
        if outcome.is_final:
            self._kept.hand_back(book)
        return outcome

    # Charge

    def _hopeless(self) -> list[Transition]:
        """Return the rejections of leases whose dependencies can never be met."""
        found = []
        for name in sorted(self._mirror.unplanned.apart):
            entry = self._mirror.leases[name]
            lease = entry.lease
            if lease.state in WAITING and lease.spec.dependencies:
                why = self._dependencies.failure(lease)
                if why is not None:
                    found.append(
                        self._transition(entry, LeaseState.REJECTED, "DEPENDENCY_FAILED", why)
                    )
        return found

    def _charges(self, made: p.Plan) -> tuple[dict[str, Transition], list[p.OperationGroup]]:
        """Return what to record before the commit, by lease, and the groups worth committing."""
        charges: dict[str, Transition] = {}
        unfit: set[str] = set()
        for decision in made.decisions:
            entry = self._mirror.leases.get(decision.lease)
            if entry is None:
                continue
            match decision:
                case p.Schedule() if _is_recordable(entry, decision):
                    charges[decision.lease] = self._scheduled(entry, decision)
                case p.Schedule():
                    # Its work must have stopped first: a later plan places it.
                    unfit.add(decision.group)
                case p.Queue(reason=reason, message=message):
                    if entry.lease.state is LeaseState.PENDING:
                        charges[decision.lease] = replace(
                            self._transition(entry, LeaseState.QUEUED, reason, message),
                            predicted_start=decision.predicted_start,
                        )
                case p.Reject(reason=reason, message=message):
                    charges[decision.lease] = replace(
                        self._transition(entry, LeaseState.REJECTED, reason, message),
                        ended=made.as_of,
                    )
                case p.Preempt() | p.Resume() | p.Lose():
                    pass
        return charges, [group for group in made.groups if group.id not in unfit]

    def _scheduled(self, entry: LeaseEntry, decision: p.Schedule) -> Transition:
        state = LeaseState.SCHEDULED
        if entry.lease.state is LeaseState.ACTIVE:
            state = LeaseState.ACTIVE
        return replace(
            self._transition(
                entry, state, decision.reason or "BOOKED", booked_text(entry, decision)
            ),
            attempt=decision.attempt,
            charge=decision.interval,
            placements=decision.placements,
            predicted_start=decision.interval.start,
        )

    def _transition(
        self, entry: LeaseEntry, state: LeaseState, reason: str, message: str
    ) -> Transition:
        lease = entry.lease
        return Transition(
            id=self._enactor.transition_id(lease.id, lease.version),
            lease=lease.id,
            version=lease.version,
            state=state,
            attempt=lease.attempt,
            reason=reason,
            message=message,
        )

    async def _charge(
        self, transitions: list[Transition], predictions: list[Prediction]
    ) -> set[str]:
        """Record them; return the leases whose transition was refused."""
        if not transitions and not predictions:
            return set()
        self._enactor.touch(transitions)
        verdicts = await self._neighbours.leases.record(self._claim, transitions, predictions)
        self._enactor.take_over(verdicts)
        refused = set()
        for transition, verdict in zip(transitions, verdicts, strict=True):
            if not verdict.reason:
                continue
            refused.add(transition.lease)
            if verdict.reason == "QUOTA_EXCEEDED":
                until = self._clock.now_ms() + QUOTA_RETRY_MS
                why = Blocked(verdict.reason, verdict.message)
                self.snapshots.hold_back(transition.lease, why, until)
            self._mirror.mark(transition.lease)
        return refused

    # Commit

    async def _commit(self, groups: list[p.OperationGroup], now: Millis) -> set[str]:
        """Commit the groups; return those that the slot table refused."""
        # A lease that is lost with its node may have nothing left to give back.
        groups = [group for group in groups if group.operations]
        wire = [
            SubmitGroup(
                group.id,
                tuple(row_operation(operation) for operation in group.operations),
                self._trace_of(group.lease),
            )
            for group in groups
        ]
        if not wire:
            return set()
        pool = self._claim.pool
        with (
            span("scheduler.commit", pool=pool, groups=len(wire)),
            span_in_each("scheduler.book") as note,
        ):
            for made, group in zip(groups, wire, strict=True):
                note(group.trace_parent, pool=pool, group=group.id, lease=made.lease)
            return set(await self._enactor.submit(wire, now))

    def _trace_of(self, lease: str) -> str:
        entry = self._mirror.leases.get(lease)
        return entry.trace_parent if entry is not None else ""

    async def _settle(
        self, outcome: PlanOutcome, before: dict[str, LeaseEntry], refused: set[str]
    ) -> None:
        """Uncharge what was refused, and record what the committed groups did to others."""
        after: dict[str, Transition] = {}
        for decision in outcome.plan.decisions:
            entry = self._mirror.leases.get(decision.lease)
            group = getattr(decision, "group", "")
            if entry is None or not group:
                continue
            self._mirror.mark(decision.lease)
            held = group in outcome.held
            scheduled = entry.lease.state is LeaseState.SCHEDULED
            match decision:
                case p.Schedule() if held:
                    after.pop(decision.lease, None)
                    self._refusals.forget(decision.lease)
                case p.Schedule() if decision.lease in before and decision.lease not in refused:
                    self._note_refusal(decision.lease)
                    if scheduled:
                        after[decision.lease] = self._reverted(entry, before[decision.lease])
                case p.Preempt(by=by) if held and scheduled:
                    reason, text = given_up_for(by)
                    given_up = self._transition(entry, LeaseState.QUEUED, reason, text)
                    after[decision.lease] = given_up
                case p.Lose(reason=reason, message=message) if held:
                    if entry.lease.state in HOLDING:
                        lost = self._transition(entry, LeaseState.FAILED, reason, message)
                        after[decision.lease] = replace(lost, ended=outcome.plan.as_of)
                case _:
                    pass
        await self._enactor.record(list(after.values()))

    def _note_refusal(self, lease: str) -> None:
        pause_ms = self._refusals.note(lease)
        if pause_ms:
            self.snapshots.hold_back(lease, REFUSED, self._clock.now_ms() + pause_ms)

    def _reverted(self, entry: LeaseEntry, before: LeaseEntry) -> Transition:
        """Return the record that undoes a charge whose booking the slot table refused."""
        text = "The slot table changed meanwhile; it is planned anew."
        was = before.lease
        if was.state is LeaseState.SCHEDULED and was.attempt == entry.lease.attempt:
            same = self._transition(entry, LeaseState.SCHEDULED, "BOOKED", was.message)
            starts = [placement.interval.start for placement in was.placements]
            return replace(
                same,
                charge=was.placements[0].interval if was.placements else None,
                placements=was.placements,
                predicted_start=min(starts, default=None),
            )
        return self._transition(entry, LeaseState.QUEUED, "PLAN_REFUSED", text)

    # Predictions

    def _news(self, outcome: PlanOutcome) -> list[Prediction]:
        """Return what changed in what the leader expects of waiting leases, now and then all."""
        expected, now = outcome.predictions, self._clock.now_ms()
        told = {name: each for name, each in self._told.items() if name in expected}
        if now - self._told_all_at >= TELL_AGAIN_MS:
            # Who reads a forecast sees by its age whether a leader still looks.
            told, self._told_all_at = {}, now
        moves = now - self._told_positions_at >= TELL_POSITIONS_MS
        if moves:
            self._told_positions_at = now
        changed = (
            each for each in expected.values() if is_news(each, told.get(each.lease), moves=moves)
        )
        news = list(islice(changed, PREDICTIONS_MAX))
        told.update((each.lease, each) for each in news)
        self._told = told
        return news


def is_news(now: Prediction, told: Prediction | None, *, moves: bool) -> bool:
    """Say whether a prediction is to be told, a changed position alone only when `moves`."""
    if told is None or moves:
        return now != told
    return (now.start, now.reason, now.message) != (told.start, told.reason, told.message)


def _is_recordable(entry: LeaseEntry, decision: p.Schedule) -> bool:
    """Say whether the lease's state allows what the planner decided, without a step between."""
    lease = entry.lease
    if lease.state in WAITING or lease.state is LeaseState.SCHEDULED:
        return True
    return lease.state is LeaseState.ACTIVE and decision.attempt == lease.attempt
