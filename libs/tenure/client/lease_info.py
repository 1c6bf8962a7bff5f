"""What a lease was at one moment, as values of Python.

Decides which fields have a name here; `message` has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.client.display import gantt, table
from tenure.client.spans import instant
from tenure_core.leases.states import LeaseState
from tenure_runtime.rpc.wire import bare, span_to_millis

ENDED: Final = frozenset(
    {LeaseState.DONE, LeaseState.FAILED, LeaseState.CANCELLED, LeaseState.REJECTED}
)


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """One lease as it was when it was read. Instants are in UTC; None where there is none yet.

    `nodes` are the ids of its nodes by rank. `message` is the whole of it, off the wire.
    """

    id: str
    state: LeaseState
    reason: str
    sentence: str
    owner: str
    project: str
    pool: str
    node_count: int
    amounts: Mapping[str, int]
    duration: timedelta
    predicted_start: datetime | None
    start: datetime | None
    end: datetime | None
    nodes: tuple[str, ...]
    attempt: int
    exit_code: int | None
    labels: Mapping[str, str]
    etag: str
    message: lpb.Lease = field(repr=False, compare=False)

    @classmethod
    def of(cls, lease: lpb.Lease) -> LeaseInfo:
        """Return what a message says."""
        return cls(
            id=bare(lease.name),
            state=state_of(lease.state),
            reason=lease.reason,
            sentence=lease.message,
            owner=lease.owner,
            project=lease.project,
            pool=lease.pool,
            node_count=lease.node_count,
            amounts=dict(lease.amounts),
            duration=timedelta(milliseconds=span_to_millis(lease.duration)),
            predicted_start=instant(lease.predicted_start_time)
            if lease.HasField("predicted_start_time")
            else None,
            start=instant(lease.start_time) if lease.HasField("start_time") else None,
            end=instant(lease.end_time) if lease.HasField("end_time") else None,
            nodes=tuple(
                bare(each.node) for each in sorted(lease.placements, key=lambda each: each.rank)
            ),
            attempt=lease.attempt,
            exit_code=lease.exit_code if lease.HasField("exit_code") else None,
            labels=dict(lease.labels),
            etag=lease.etag,
            message=lease,
        )

    @property
    def ended(self) -> bool:
        """Say whether nothing will become of it any more."""
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        """Say whether it ended as it should."""
        return self.state is LeaseState.DONE and not self.exit_code

    def _repr_html_(self) -> str:
        return LeaseTable([self])._repr_html_()


class LeaseTable(list[LeaseInfo]):
    """Leases that a notebook shows as a table and a Gantt picture.

    `token` is where a watch goes on with what changes after this list.
    """

    token: str = ""

    def _repr_html_(self) -> str:
        columns = ("lease", "state", "why", "slots", "amounts", "nodes", "exit code")
        rows = [
            (
                each.id,
                each.state.name.lower(),
                each.reason.lower().replace("_", " "),
                each.node_count,
                " ".join(f"{kind}={amount}" for kind, amount in sorted(each.amounts.items())),
                " ".join(each.nodes),
                "" if each.exit_code is None else each.exit_code,
            )
            for each in self
        ]
        return table(columns, rows) + gantt(_bars(self))


def _bars(leases: Iterable[LeaseInfo]) -> list[tuple[str, str, datetime, datetime]]:
    """Return (label, state, begin, end) of every lease whose time is known."""
    bars = []
    for each in leases:
        begin = each.start or each.predicted_start
        placed = each.message.placements
        if begin is None and placed:
            begin = instant(placed[0].interval.start_time)
        if begin is not None:
            end = each.end or begin + each.duration
            bars.append((each.id, each.state.name.lower(), begin, max(begin, end)))
    return bars


def state_of(number: int) -> LeaseState:
    """Return a state off the wire; ValueError for one that this version does not know."""
    known = lpb.Lease.State.keys()
    name = lpb.Lease.State.Name(number) if number in lpb.Lease.State.values() else str(number)  # type: ignore[arg-type]  # a number off the wire
    if name not in known or number == lpb.Lease.STATE_UNSPECIFIED:
        raise ValueError(f"the state {name} is not known here: a newer client is needed")
    return LeaseState(name.removeprefix("STATE_"))


def number_of(state: LeaseState) -> lpb.Lease.State.ValueType:
    """Return a state for the wire."""
    return lpb.Lease.State.Value(f"STATE_{state.name}")
