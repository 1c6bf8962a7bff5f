"""What is held on every node, kind by kind, and how it moves: the arithmetic of a slot ledger.

Per node and kind there are three buckets: *reserved* (will start), *held* (promised, others still
use it) and *used* (as the agent reported). Every move changes a member's row and its node's buckets
together, and is guarded by the stage that the member is in, so that repeated, late and reordered
events change nothing. Reports carry the attempt that they are about; those of an older attempt are
ignored. A report above the reservation is taken and *flagged*, never clamped.

One batch settles per lease: a lease that lost a race does not undo the others. With
`all_or_none=True` it does, as in the ancestor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tenure_core.admission.amounts import Amounts, minus, plus
from tenure_core.admission.ledger_rows import (
    Bucket,
    LeaseRow,
    MemberRow,
    NodeAccount,
    Overreport,
    Report,
)
from tenure_core.admission.lifecycle import (
    ENDED,
    MEMBER_STOPPABLE,
    MEMBER_UNSTARTED,
    Stage,
    may_write,
)

_PULLS_FROM: Final = frozenset({Stage.SCHEDULED})
_RUNS_FROM: Final = frozenset({Stage.PREPARED, Stage.STARTING})


class CapacityLedger:
    """All accounts and rows. A pure in-memory model; the store repeats its guards in SQL."""

    def __init__(self, nodes: Mapping[str, NodeAccount], leases: Mapping[str, LeaseRow]) -> None:
        self.nodes = dict(nodes)
        self.leases = dict(leases)
        self.overreports: list[Overreport] = []
        self._held_in_order: list[tuple[str, int]] = []

    def allocate(self, leases: Sequence[str], *, all_or_none: bool = False) -> list[str]:
        """Reserve room for waiting leases on their planned nodes; return those that have it.

        A lease whose members are all reserved already is returned, and nothing changes. One that is
        no longer waiting is not, unless `all_or_none`: the ancestor reports it all the same.
        """
        return self._each(leases, Bucket.RESERVED, Stage.SCHEDULED, all_or_none)

    def hold(self, leases: Sequence[str], *, all_or_none: bool = False) -> list[str]:
        """Promise room that others still use: only reserved and held count against it."""
        return self._each(leases, Bucket.HELD, Stage.HELD, all_or_none)

    def admit(self, leases: Sequence[str]) -> list[tuple[str, int]]:
        """Turn promises into reservations where the room is free now; return (lease, rank).

        Per node in the order of the promises: the first that does not fit stops its node, so that a
        later, smaller one never overtakes.
        """
        admitted: list[tuple[str, int]] = []
        stopped: set[str] = set()
        for lease, rank in list(self._held_in_order):
            row = self.leases[lease].members[rank]
            if lease not in leases or row.stage is not Stage.HELD or row.node in stopped:
                continue
            assert row.node is not None
            if not self._fits(row.node, row.amounts, (Bucket.USED, Bucket.RESERVED)):
                stopped.add(row.node)
                continue
            self._count(row, row.node, Bucket.RESERVED, row.amounts)
            row.stage = Stage.SCHEDULED
            admitted.append((lease, rank))
        return admitted

    def report(
        self,
        lease: str,
        rank: int,
        report: Report,
        *,
        attempt: int | None = None,
        used: Amounts | None = None,
    ) -> bool:
        """Take an agent's report; False when it is late, repeated or of another attempt.

        `used` replaces the amounts of the kinds that it names. Without `attempt` the report is
        taken as being about the present one, which no agent of ours leaves open.
        """
        row = self.leases[lease].members[rank]
        if attempt is not None and attempt != row.attempt:
            return False
        if report is Report.PULLING:
            return self._advance(row, _PULLS_FROM, Stage.PULLING)
        if report is Report.STARTING:
            return self._advance(row, frozenset({Stage.PULLING}), Stage.STARTING)
        if report is Report.ACTIVE:
            return self._runs(lease, rank, row, used or {})
        if report is Report.CANCELLED:
            return self._end(row, MEMBER_UNSTARTED, Stage.CANCELLED)
        return self._end(row, MEMBER_STOPPABLE | {Stage.STOPPING}, Stage.DONE)

    def requeue(self, leases: Sequence[str]) -> int:
        """Send leases back to the queue, whatever their members do; return how many members.

        Everything counted is released, the request restored, and the attempt goes up by one.
        """
        count = 0
        for lease in leases:
            for row in self.leases[lease].members:
                self._release(row)
                row.stage, row.node = Stage.WAITING, None
                row.attempt += 1
                count += 1
        return count

    def stop(self, lease: str, *, forced: bool, releases: bool = True) -> Stage | None:
        """End a lease on its owner's word; return the stage written, None when it had ended.

        One that waits is cancelled at once with its members. Others begin to stop, or by force end
        at once with everything released. Between the write of a member and that of its lease a
        waiting lease may have something counted already: it is released too, unless `releases` is
        unset, as in the ancestor, where it leaks.
        """
        row = self.leases[lease]
        if row.stage in ENDED:
            return None
        if row.stage is Stage.WAITING:
            for member in row.members:
                if releases:
                    self._release(member)
                member.stage = Stage.CANCELLED
            row.stage = Stage.CANCELLED
        elif forced:
            for member in row.members:
                self._end(member, frozenset(Stage) - ENDED, Stage.DONE)
            row.stage = Stage.DONE
        else:
            for member in row.members:
                if member.stage in MEMBER_STOPPABLE:
                    member.stage = Stage.STOPPING
            row.stage = Stage.STOPPING
        return row.stage

    def write_stage(self, lease: str, decided_on: Stage, target: Stage) -> bool:
        """Write a lease's stage if it still is what the decision was made on."""
        row = self.leases[lease]
        if not may_write(row.stage, decided_on, target):
            return False
        row.stage = target
        return True

    def drift(self) -> list[tuple[str, Bucket]]:
        """Return the buckets that are not the sum over the rows counted in them: always none."""
        sums = self._sums()
        return [
            (node, bucket)
            for node, account in self.nodes.items()
            for bucket, counted in account.buckets.items()
            if any(minus(counted, sums.get((node, bucket), {})).values())
        ]

    def reconcile(self) -> int:
        """Free what ended members still hold, and make the buckets the sums of the rows.

        Returns how many rows were freed and buckets corrected: zero while nothing is wrong. What
        is counted without a row (work that nobody here knows) goes, so resync with agents first.
        """
        corrected = 0
        for lease in self.leases.values():
            for row in lease.members:
                if row.stage in ENDED and row.bucket is not None:
                    self._release(row)
                    corrected += 1
        sums = self._sums()
        for node, bucket in self.drift():
            self.nodes[node].buckets[bucket] = sums.get((node, bucket), {})
            corrected += 1
        return corrected

    def _sums(self) -> dict[tuple[str, Bucket], dict[str, int]]:
        sums: dict[tuple[str, Bucket], dict[str, int]] = {}
        for lease in self.leases.values():
            for row in lease.members:
                if row.bucket is not None and row.node is not None:
                    key = (row.node, row.bucket)
                    sums[key] = plus(sums.get(key, {}), row.counted)
        return sums

    def _each(
        self, leases: Sequence[str], bucket: Bucket, stage: Stage, all_or_none: bool
    ) -> list[str]:
        done: list[str] = []
        changed: list[MemberRow] = []
        for lease in leases:
            outcome = self._reserve(lease, bucket, stage)
            if outcome is None:
                if all_or_none:
                    for row in changed:
                        self._release(row)
                        row.stage, row.node = Stage.WAITING, None
                    return []
                continue
            changed += outcome
            if all_or_none or outcome or self._has(lease, stage):
                done.append(lease)
        return done

    def _has(self, lease: str, stage: Stage) -> bool:
        return all(row.stage is stage for row in self.leases[lease].members)

    def _reserve(self, lease: str, bucket: Bucket, stage: Stage) -> list[MemberRow] | None:
        """Count all waiting members of one lease, or none; return the rows changed."""
        against = [Bucket.RESERVED, Bucket.HELD]
        if bucket is Bucket.RESERVED:
            against.append(Bucket.USED)
        changed: list[MemberRow] = []
        for rank, row in enumerate(self.leases[lease].members):
            if row.stage is not Stage.WAITING:
                continue
            if not self._fits(row.planned, row.amounts, against):
                for undone in changed:
                    self._release(undone)
                    undone.stage, undone.node = Stage.WAITING, None
                return None
            self._count(row, row.planned, bucket, row.amounts)
            row.stage = stage
            changed.append(row)
            if bucket is Bucket.HELD:
                self._held_in_order.append((lease, rank))
        return changed

    def _fits(self, node: str, amounts: Amounts, against: Sequence[Bucket]) -> bool:
        account = self.nodes[node]
        return all(
            sum(account.amount(bucket, kind) for bucket in against) + amount
            <= account.capacity.get(kind, 0)
            for kind, amount in amounts.items()
        )

    def _runs(self, lease: str, rank: int, row: MemberRow, used: Amounts) -> bool:
        if row.stage not in _RUNS_FROM or row.node is None:
            return False
        counted = {**row.amounts, **used}
        excess = {
            kind: amount - row.amounts.get(kind, 0)
            for kind, amount in counted.items()
            if amount > row.amounts.get(kind, 0)
        }
        if excess:
            self.overreports.append(Overreport(lease, rank, excess))
        self._count(row, row.node, Bucket.USED, counted)
        row.stage = Stage.ACTIVE
        return True

    def _advance(self, row: MemberRow, origins: frozenset[Stage], target: Stage) -> bool:
        if row.stage not in origins:
            return False
        row.stage = target
        return True

    def _end(self, row: MemberRow, origins: frozenset[Stage], target: Stage) -> bool:
        if row.stage not in origins:
            return False
        self._release(row)
        row.stage = target
        return True

    def _count(self, row: MemberRow, node: str, bucket: Bucket, amounts: Amounts) -> None:
        self._release(row)
        buckets = self.nodes[node].buckets
        buckets[bucket] = plus(buckets[bucket], amounts)
        row.node, row.bucket, row.counted = node, bucket, amounts

    def _release(self, row: MemberRow) -> None:
        if row.bucket is None or row.node is None:
            return
        if row.bucket is Bucket.HELD:
            self._held_in_order = [
                (lease, rank)
                for lease, rank in self._held_in_order
                if self.leases[lease].members[rank] is not row
            ]
        buckets = self.nodes[row.node].buckets
        buckets[row.bucket] = minus(buckets[row.bucket], row.counted)
        row.bucket, row.counted = None, {}
