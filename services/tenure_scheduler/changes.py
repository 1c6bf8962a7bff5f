"""Changes that owners ask for of leases that hold capacity: granted, or refused with offers.

A longer booking is charged first and committed then; a shorter one the other way round. More slots
are booked first: a leader that finds them unrecorded goes on, whereas a lease recorded with slots
that nobody booked would have lost its booking. What is refused leaves the lease as it was.
"""

from __future__ import annotations

from dataclasses import replace

from tenure_core.leases.lease import LeaseSpec, Placement
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.slots.commit import PoolTable
from tenure_core.slots.operations import BookRow, MoveRow, ReleaseRow, ResizeRow, RowOperation
from tenure_core.slots.query import Demand, Fit, Window
from tenure_core.slots.table import SlotTable
from tenure_core.timebase import Interval, Millis
from tenure_scheduler.enacting import Enactor
from tenure_scheduler.entries import (
    ChangeVerdict,
    CounterOffer,
    LeaseEntry,
    RequestedChange,
    SubmitGroup,
    Transition,
    TransitionVerdict,
)
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.poolclock import PoolClock

_RESIZABLE = frozenset({LeaseState.SCHEDULED, LeaseState.STARTING, LeaseState.ACTIVE})


class ChangeDesk:
    """Decides the pending changes of one pool."""

    def __init__(self, mirror: PoolMirror, clock: PoolClock, enactor: Enactor) -> None:
        self._mirror = mirror
        self._clock = clock
        self._enactor = enactor

    async def run_once(self) -> int:
        """Decide every pending change; return how many there were."""
        changing = sorted(self._mirror.unplanned.changing, key=self._mirror.arrival.__getitem__)
        waiting = [self._mirror.leases[name] for name in changing]
        for entry in waiting:
            assert entry.change is not None
            await self._decide(entry, entry.change)
        return len(waiting)

    async def _decide(self, entry: LeaseEntry, change: RequestedChange) -> None:
        lease = entry.lease
        runs = self._runs(entry)
        count = lease.spec.node_count
        if _changes_slots_only(entry, change, runs):
            narrower = change.node_count < count
            await (self._give_up_slots if narrower else self._add_slots)(entry, change, runs)
        elif change.node_count not in (0, count):
            text = "A booking changes its slots before it starts, and nothing else with them."
            offer = CounterOffer(node_count=count)
            await self._answer(
                entry, ChangeVerdict(change, False, "NOT_CHANGEABLE", text, (offer,))
            )
        elif change.start is not None and lease.state is not LeaseState.SCHEDULED:
            text = "A lease that was started cannot be moved."
            await self._answer(entry, ChangeVerdict(change, False, "NOT_CHANGEABLE", text))
        elif change.start is None and change.duration_ms is None:
            await self._answer(entry, ChangeVerdict(change, True))
        elif lease.state not in _RESIZABLE or len(runs) != count:
            text = f"A lease that is {lease.state.value} cannot be extended or shrunk."
            await self._answer(entry, ChangeVerdict(change, False, "NOT_CHANGEABLE", text))
        else:
            await self._resize(entry, change, runs)

    def _runs(self, entry: LeaseEntry) -> list[ReservationView]:
        rows = self._mirror.rows_of(entry.lease.id)
        return [row for row in rows if row.kind is ReservationKind.RUN]

    async def _give_up_slots(
        self, entry: LeaseEntry, change: RequestedChange, runs: list[ReservationView]
    ) -> None:
        """Give the last slots back, then record it: a lease is charged for what it holds."""
        kept = [row for row in runs if row.rank < change.node_count]
        surplus = [ReleaseRow(row.id, row.version) for row in runs if row not in kept]
        if surplus:
            group = SubmitGroup(f"{entry.lease.id}/change", tuple(surplus), entry.trace_parent)
            if await self._enactor.submit([group], self._clock.now_ms()):
                # The table changed meanwhile: it is decided anew when that is heard of.
                return
        placements = tuple(Placement(row.rank, row.node, row.interval) for row in kept)
        await self._answer(self._present(entry), ChangeVerdict(change, True), placements=placements)

    async def _add_slots(
        self, entry: LeaseEntry, change: RequestedChange, runs: list[ReservationView]
    ) -> None:
        """Book more slots at the time of those that there are, then record it, which charges it.

        When it may not be charged they are given back; those that were there are never touched.
        """
        more = [row for row in runs if row.rank >= entry.lease.spec.node_count]
        if not more:
            more, refused = await self._book_beside(entry, change, runs)
            if refused is not None:
                await self._answer(entry, refused)
                return
            runs = [*runs, *more]
        placements = tuple(Placement(row.rank, row.node, row.interval) for row in runs)
        granted = ChangeVerdict(change, True)
        recorded = await self._answer(self._present(entry), granted, placements=placements)
        if recorded.reason != "QUOTA_EXCEEDED":
            return
        surplus = tuple(ReleaseRow(row.id, row.version) for row in more)
        group = SubmitGroup(f"{entry.lease.id}/change", surplus, entry.trace_parent)
        if not await self._enactor.submit([group], self._clock.now_ms()):
            verdict = ChangeVerdict(change, False, recorded.reason, recorded.message)
            await self._answer(self._present(entry), verdict)

    async def _book_beside(
        self, entry: LeaseEntry, change: RequestedChange, runs: list[ReservationView]
    ) -> tuple[list[ReservationView], ChangeVerdict | None]:
        """Book the slots that the booking lacks; return them, or none and the refusal."""
        lease, count, now = entry.lease, entry.lease.spec.node_count, self._clock.now_ms()
        demand = replace(_demand(lease.spec), count=change.node_count - count)
        if demand.spread:
            taken = {row.node for row in runs}
            demand = replace(demand, nodes=frozenset(self._mirror.nodes) - taken)
        found = self._table_without(set()).fit_or_slots(demand, runs[0].interval)
        fits = found if isinstance(found, int) else demand.count
        refusal = f"Beside its {count} slots, {fits} more fit at its time."
        if isinstance(found, Fit):
            more = [
                replace(
                    runs[0],
                    id=f"{lease.id}.{lease.attempt}.{rank}.{now}-{rank}",
                    rank=rank,
                    node=node,
                    displaced=False,
                    version=1,
                )
                for rank, node in enumerate(found.nodes, count)
            ]
            name = f"{lease.id}/change"
            group = SubmitGroup(name, tuple(map(BookRow, more)), entry.trace_parent)
            refusal = (await self._enactor.submit([group], now)).get(name, "")
            if not refusal:
                return more, None
        offers = (CounterOffer(node_count=count + fits),) if 0 < fits < demand.count else ()
        return [], ChangeVerdict(change, False, "CAPACITY_EXCEEDED", refusal, offers)

    def _table_without(self, own: set[str]) -> SlotTable:
        others = (row for row in self._mirror.rows.values() if row.id not in own)
        return PoolTable(self._mirror.nodes.values(), others).slots

    async def _resize(
        self, entry: LeaseEntry, change: RequestedChange, runs: list[ReservationView]
    ) -> None:
        lease, now = entry.lease, self._clock.now_ms()
        old = runs[0].interval
        wanted = lease.spec.duration_ms if change.duration_ms is None else change.duration_ms
        longer = wanted - lease.spec.duration_ms
        start = old.start if change.start is None else change.start
        # From what is recorded, not from what is booked: a leader before may have done the latter.
        remaining = max(1, (lease.remaining_ms or lease.spec.duration_ms) + longer)
        end = start + remaining
        if end <= max(now, start) or (change.start is not None and start < now):
            text = "The change would end or start the lease in the past."
            await self._answer(entry, ChangeVerdict(change, False, "IN_THE_PAST", text))
            return
        new = Interval(start, end)
        charged = await self._charge(entry, Interval(min(old.start, start), max(old.end, end)))
        if charged is not None:
            await self._answer(self._present(entry), replace(charged, change=change))
            return
        refusal = await self._commit(entry, runs, old, new)
        if refusal:
            verdict = ChangeVerdict(
                change, False, "CAPACITY_EXCEEDED", refusal, self._offers(entry, new)
            )
            await self._answer(self._present(entry), verdict, charge=old)
            return
        placements = tuple(Placement(row.rank, row.node, new) for row in runs)
        await self._answer(
            self._present(entry),
            ChangeVerdict(change, True),
            charge=new,
            placements=placements,
            remaining_ms=remaining,
        )

    def _present(self, entry: LeaseEntry) -> LeaseEntry:
        return self._mirror.leases.get(entry.lease.id, entry)

    async def _charge(self, entry: LeaseEntry, charge: Interval) -> ChangeVerdict | None:
        """Charge the longer span; return the refusal, None when it is charged."""
        [verdict] = await self._enactor.record([self._same(entry, charge=charge)])
        if not verdict.reason:
            return None
        assert entry.change is not None
        return ChangeVerdict(entry.change, False, verdict.reason, verdict.message)

    async def _commit(
        self, entry: LeaseEntry, runs: list[ReservationView], old: Interval, new: Interval
    ) -> str:
        """Move or resize the reservations together; return why not, empty when done."""
        operations: list[RowOperation] = [
            ResizeRow(row.id, row.version, new.end)
            if new.start == old.start
            else MoveRow(row.id, row.version, new)
            for row in runs
        ]
        name = f"{entry.lease.id}/change"
        group = SubmitGroup(name, tuple(operations), entry.trace_parent)
        return (await self._enactor.submit([group], self._clock.now_ms())).get(name, "")

    def _offers(self, entry: LeaseEntry, wanted: Interval) -> tuple[CounterOffer, ...]:
        """Return the longest duration that fits from where it is, and the next start that fits."""
        lease = entry.lease
        table = self._table_without({row.id for row in self._mirror.rows_of(lease.id)})
        offers: list[CounterOffer] = []
        longest = self._longest(entry, wanted)
        if longest is not None and longest > 0:
            offers.append(CounterOffer(duration_ms=longest))
        if lease.state is LeaseState.SCHEDULED:
            window = Window(wanted.duration_ms, wanted.start)
            fit = table.earliest_start(_demand(lease.spec), window)
            if fit is not None:
                offers.append(CounterOffer(start=fit.start, duration_ms=wanted.duration_ms))
        return tuple(offers)

    def _longest(self, entry: LeaseEntry, wanted: Interval) -> Millis | None:
        """Return the longest duration on the lease's present nodes, None when it is not known."""
        lease = entry.lease
        runs = self._runs(entry)
        ends = [wanted.end]
        for run in runs:
            for row in self._mirror.rows.values():
                begins = row.interval.start
                if row.node == run.node and row.lease != lease.id and begins >= run.interval.end:
                    ends.append(begins)
        start = min(row.interval.start for row in runs)
        best = min(ends)
        longest = lease.spec.duration_ms + best - max(row.interval.end for row in runs)
        return longest if best > start and longest > lease.spec.duration_ms else None

    async def _answer(
        self,
        entry: LeaseEntry,
        verdict: ChangeVerdict,
        *,
        charge: Interval | None = None,
        placements: tuple[Placement, ...] = (),
        remaining_ms: Millis | None = None,
    ) -> TransitionVerdict:
        transition = replace(
            self._same(entry, charge=charge),
            change=verdict,
            placements=placements,
            remaining_ms=remaining_ms,
            predicted_start=min((p.interval.start for p in placements), default=None),
        )
        [recorded] = await self._enactor.record([transition])
        return recorded

    def _same(self, entry: LeaseEntry, *, charge: Interval | None) -> Transition:
        lease = entry.lease
        return Transition(
            id=self._enactor.transition_id(lease.id, lease.version),
            lease=lease.id,
            version=lease.version,
            state=lease.state,
            attempt=lease.attempt,
            reason=lease.reason,
            message=lease.message,
            charge=charge,
        )


def _demand(spec: LeaseSpec) -> Demand:
    return Demand(spec.amounts, spec.node_count, spec.node_selector, spec.spread)


def _changes_slots_only(
    entry: LeaseEntry, change: RequestedChange, runs: list[ReservationView]
) -> bool:
    """Say whether a booking is to have other slots and is to stay as it is otherwise."""
    count = entry.lease.spec.node_count
    return (
        change.node_count not in (0, count)
        and entry.lease.state is LeaseState.SCHEDULED
        and change.start is None
        and change.duration_ms is None
        and len(runs) in (count, change.node_count)
    )
