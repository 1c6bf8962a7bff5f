"""What the enactor records holds for what it looked at, whatever arrives while it waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.unit.tenure_scheduler.test_mirror import CPU, SPAN, an_entry

from tenure_core.agents.states import AgentState
from tenure_core.agents.work import ReportKind
from tenure_core.enactment.ranks import Report
from tenure_core.leases.states import LeaseState
from tenure_core.planning.snapshot import ReservationKind, ReservationView
from tenure_core.timebase import Millis
from tenure_scheduler.enacting import Enactor
from tenure_scheduler.entries import (
    AgentEntry,
    SubmitGroup,
    SubmitResult,
    SubmitVerdict,
    Transition,
)
from tenure_scheduler.mirror import PoolMirror
from tenure_scheduler.poolclock import PoolClock
from tenure_scheduler.ports import Claim, Neighbours


class _Boot:
    def now_ms(self) -> Millis:
        return 500


class _Neighbours:
    """Take everything; while capacity is given back, an owner's change arrives."""

    def __init__(self, mirror: PoolMirror) -> None:
        self._mirror = mirror
        self.recorded: list[Transition] = []

    async def submit(
        self, _claim: Claim, as_of: Millis, revision: int, groups: Sequence[SubmitGroup]
    ) -> SubmitResult:
        [entry] = self._mirror.leases.values()
        changed = replace(entry.lease, version=entry.lease.version + 1)
        self._mirror.put_lease(replace(entry, lease=changed))
        verdicts = tuple(SubmitVerdict(group.id, "", "", ()) for group in groups)
        return SubmitResult(verdicts, revision + 1, as_of)

    async def record(self, _claim: Claim, transitions: Sequence[Transition], _: Any) -> list[Any]:
        self.recorded += transitions
        return []


async def test_a_transition_is_for_the_version_that_was_looked_at() -> None:
    mirror = PoolMirror()
    mirror.put_agent(AgentEntry("n0", AgentState.ALIVE, CPU))
    mirror.put_lease(an_entry("works", LeaseState.ACTIVE, 4))
    row = ReservationView("r", "works", 1, 0, "n0", SPAN, CPU, ReservationKind.RUN)
    mirror.put_row(row)
    end = Report("works", 1, 0, ReportKind.ENDED, exit_code=0, reason="EXITED")
    mirror.put_report(end)
    neighbours: Any = _Neighbours(mirror)
    clock = PoolClock(_Boot())
    clock.observe(500)
    enactor = Enactor(
        Claim("pool", 1), mirror, clock, Neighbours(neighbours, neighbours, neighbours)
    )

    await enactor.run_once()

    assert mirror.leases["works"].lease.version == 5
    [recorded] = neighbours.recorded
    assert (recorded.lease, recorded.version, recorded.state) == ("works", 4, LeaseState.DONE)
