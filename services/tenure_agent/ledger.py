"""What is true on this agent, rebuilt from its journal: epochs, allocations, answers, reports.

Decides what is remembered and for how long. One path changes it, a record: a live change appends
the record and applies it, a restart applies the records that were durable. What to do about a
command is left to `executor`.

Bounds: ended allocations and answers are kept to `REMEMBERED_MAX` each (older ones are forgotten,
never one that is not acknowledged), and the file is rewritten when it has grown by
`GENERATION_BYTES`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tenure_agent.journal import Journal, Record
from tenure_agent.work import Command, Key, Kind, Observed, Report, State, Verb

REMEMBERED_MAX: Final = 4_096
GENERATION_BYTES: Final = 4 * 1024 * 1024

_STATE_AFTER: Final = {
    Kind.STARTED: State.RUNNING,
    Kind.RESUMED: State.RUNNING,
    Kind.SUSPENDED: State.SUSPENDED,
    Kind.ENDED: State.ENDED,
}


@dataclass(slots=True)
class Allocation:
    """What is known of one allocation. `pending` are commands that have no answer yet, in order."""

    key: Key
    state: State
    keep_on_loss: bool = False
    grace_ms: int = 0
    bare: bool = False
    exit_code: int | None = None
    reason: str = ""
    run_ms: int = 0
    pending: list[tuple[str, Verb]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Say whether nothing of it runs, or ever will."""
        return self.state is State.ENDED

    def first_pending(self, verb: Verb) -> str:
        """Return the id of the oldest unanswered command of one verb, or ""."""
        return next((id_ for id_, each in self.pending if each is verb), "")


class Ledger:
    """The agent's memory. Changes are durable once a later `durable()` returns."""

    def __init__(self, journal: Journal, records: list[Record]) -> None:
        self._journal = journal
        self.epochs: dict[str, int] = {}
        self.allocations: dict[Key, Allocation] = {}
        self._leases: dict[str, list[Key]] = {}
        self._living: dict[Key, Allocation] = {}
        self.answers: dict[str, Report | None] = {}
        self.unacknowledged: dict[int, Report] = {}
        self.last_sequence = 0
        self._acknowledged = 0
        self._generation_bytes = journal.size_bytes
        for record in records:
            self._apply(record)

    @classmethod
    def open(cls, folder: Path) -> Ledger:
        """Open the ledger kept in `folder`."""
        return cls(*Journal.open(folder))

    async def durable(self) -> None:
        """Return when every change made so far is on disk."""
        await self._journal.durable()

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    # Changes: each appends one record and applies it.

    def raise_epoch(self, scope: str, epoch: int) -> None:
        """Remember the highest epoch of a scope; a lower one changes nothing."""
        if epoch > self.epochs.get(scope, 0):
            self._change(["epoch", scope, epoch])

    def accept(self, command: Command) -> None:
        """Remember that a command will be acted on; its answer is still to come."""
        launch = command.launch
        facts = (
            {
                "keep_on_loss": launch.keep_on_loss,
                "grace_ms": launch.grace_ms,
                "bare": not launch.command,
            }
            if launch
            else {}
        )
        self._change(["command", command.id, command.verb, list(command.key), facts])

    def report(self, report: Report) -> None:
        """Remember something that happened, until the registry has acknowledged it."""
        assert report.sequence == self.last_sequence + 1
        self._change(["report", _fields(report)])

    def acknowledge(self, sequence: int) -> None:
        """Forget reports up to `sequence`: the registry has stored them."""
        if sequence > self._acknowledged and self.unacknowledged:
            self._change(["acknowledged", min(sequence, self.last_sequence)])

    def observed(self) -> list[Observed]:
        """Return what runs, is suspended, or ended without an acknowledged report."""
        unacknowledged = {r.key for r in self.unacknowledged.values() if r.kind is Kind.ENDED}
        return [
            Observed(each.key, each.state, each.exit_code)
            for each in self.allocations.values()
            if not each.ended or each.key in unacknowledged
        ]

    def of_lease(self, lease: str) -> list[Allocation]:
        """Return every allocation of a lease that is remembered."""
        return [self.allocations[key] for key in self._leases.get(lease, ())]

    def living(self) -> list[Allocation]:
        """Return the allocations that have not ended."""
        return list(self._living.values())

    async def compact_if_grown(self) -> bool:
        """Rewrite the journal if it has grown much since it was last rewritten; say whether."""
        if self._journal.size_bytes < self._generation_bytes + GENERATION_BYTES:
            return False
        await self.compact()
        return True

    async def compact(self) -> None:
        """Rewrite the journal as a statement of what is true now."""
        self._forget_old()
        await self._journal.replace(self._statement)
        self._generation_bytes = self._journal.size_bytes

    def _statement(self) -> Iterator[Record]:
        for scope, epoch in self.epochs.items():
            yield ["epoch", scope, epoch]
        yield ["position", self.last_sequence, self._acknowledged]
        for allocation in self.allocations.values():
            yield ["allocation", asdict(allocation)]
        for id_, report in self.answers.items():
            yield ["answer", id_, _fields(report) if report else None]
        for report in self.unacknowledged.values():
            yield ["unacknowledged", _fields(report)]

    def _change(self, record: Record) -> None:
        self._journal.append(record)
        self._apply(record)

    def _apply(self, record: Record) -> None:
        match record:
            case ["epoch", scope, epoch]:
                self.epochs[scope] = max(epoch, self.epochs.get(scope, 0))
            case ["command", id_, verb, key, facts]:
                self._apply_command(id_, Verb(verb), Key(*key), facts)
            case ["report", fields]:
                self._apply_report(_report(fields))
            case ["acknowledged", sequence]:
                self._acknowledged = sequence
                for each in [n for n in self.unacknowledged if n <= sequence]:
                    del self.unacknowledged[each]
                self._forget_old()
            case ["position", last, acknowledged]:
                self.last_sequence, self._acknowledged = last, acknowledged
            case ["allocation", fields]:
                self._apply_allocation(fields)
            case ["answer", id_, fields]:
                self.answers[id_] = _report(fields) if fields else None
            case ["unacknowledged", fields]:
                report = _report(fields)
                self.unacknowledged[report.sequence] = report
            case _:
                raise ValueError(f"the journal holds an unknown record: {record[0]!r}")

    def _apply_command(self, id_: str, verb: Verb, key: Key, facts: dict[str, Any]) -> None:
        self.answers[id_] = None
        if verb is Verb.START:
            self._add(Allocation(key, State.STARTING, **facts))
        if key in self.allocations:
            self.allocations[key].pending.append((id_, verb))

    def _apply_report(self, report: Report) -> None:
        self.last_sequence = report.sequence
        self.unacknowledged[report.sequence] = report
        allocation = self.allocations.get(report.key)
        if allocation is None and report.kind is Kind.ENDED:
            # A mark that nothing of this name may begin any more.
            allocation = self._add(Allocation(report.key, State.STARTING))
        verb: Verb | None = None
        if report.command_id:
            self.answers[report.command_id] = report
        if allocation is None:
            return
        if report.command_id:
            verb = next((v for id_, v in allocation.pending if id_ == report.command_id), None)
            allocation.pending = [p for p in allocation.pending if p[0] != report.command_id]
        allocation.run_ms = max(allocation.run_ms, report.run_ms)
        if report.kind is Kind.REFUSED and verb is Verb.START:
            # Nothing of it ever ran, so the same attempt may be started by another command.
            self._remove(allocation.key)
        elif not allocation.ended and report.kind in _STATE_AFTER:
            self._move(allocation, _STATE_AFTER[report.kind])
            if report.kind is Kind.ENDED:
                allocation.exit_code, allocation.reason = report.exit_code, report.reason

    def _apply_allocation(self, fields: dict[str, Any]) -> None:
        key = Key(*fields.pop("key"))
        state = State(fields.pop("state"))
        pending = [(id_, Verb(verb)) for id_, verb in fields.pop("pending")]
        self._add(Allocation(key, state, pending=pending, **fields))

    def _add(self, allocation: Allocation) -> Allocation:
        self.allocations[allocation.key] = allocation
        if not allocation.ended:
            self._living[allocation.key] = allocation
        self._leases.setdefault(allocation.key.lease, []).append(allocation.key)
        return allocation

    def _move(self, allocation: Allocation, state: State) -> None:
        allocation.state = state
        if allocation.ended:
            self._living.pop(allocation.key, None)

    def _remove(self, key: Key) -> None:
        del self.allocations[key]
        self._living.pop(key, None)
        self._leases[key.lease].remove(key)
        if not self._leases[key.lease]:
            del self._leases[key.lease]

    def _forget_old(self) -> None:
        """Drop the oldest ended allocations and answers beyond the bound."""
        excess = len(self.answers) - REMEMBERED_MAX
        if excess > 0:
            old = [i for i, r in self.answers.items() if r and r.sequence <= self._acknowledged]
            for id_ in old[:excess]:
                del self.answers[id_]
        excess = len(self.allocations) - REMEMBERED_MAX
        if excess > 0:
            unacknowledged = {report.key for report in self.unacknowledged.values()}
            ended = [k for k, a in self.allocations.items() if a.ended and k not in unacknowledged]
            for key in ended[:excess]:
                self._remove(key)


def _fields(report: Report) -> list[Any]:
    """Return a report as JSON values, in the order of its fields."""
    return [
        report.sequence,
        report.id,
        report.kind,
        report.key,
        report.command_id,
        report.exit_code,
        report.reason,
        report.message,
        report.wall_ms,
        report.run_ms,
    ]


def _report(fields: list[Any]) -> Report:
    sequence, id_, kind, key, *rest = fields
    return Report(sequence, id_, Kind(kind), Key(*key), *rest)
