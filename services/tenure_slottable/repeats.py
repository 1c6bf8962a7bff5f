"""Requests that may come again, and how their first answers are kept as bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tenure_core.errors import AlreadyExists, Conflict, DomainError, Exhausted, NotFound, WrongState
from tenure_core.planning.snapshot import ReservationView
from tenure_core.slots import operations
from tenure_slottable.ports import StoredRow
from tenure_slottable.store.codec import row_from_json, row_to_json
from tenure_slottable.usecases import PlanResult

_REFUSALS: dict[str, type[DomainError]] = {
    kind.__name__: kind for kind in (AlreadyExists, Conflict, Exhausted, NotFound, WrongState)
}


@dataclass(frozen=True, slots=True)
class PlanRepeat:
    """A plan that may be submitted again, and its answer as bytes."""

    caller: str
    request_id: str
    request: bytes

    def pack(self, result: PlanResult) -> bytes:
        """Return the verdicts as bytes."""
        verdicts = [
            [
                verdict.group,
                None
                if verdict.error is None
                else [type(verdict.error).__name__, verdict.error.reason, verdict.error.message],
                [row_to_json(StoredRow(row, "", 0)) for row in verdict.rows],
            ]
            for verdict in result.verdicts
        ]
        return json.dumps([verdicts, result.revision, result.at]).encode()

    def unpack(self, stored: bytes) -> PlanResult:
        """Return the verdicts that `pack` stored."""
        verdicts, revision, at = json.loads(stored)
        return PlanResult(
            tuple(
                operations.GroupVerdict(
                    group,
                    None if error is None else _REFUSALS[error[0]](error[1], error[2]),
                    tuple(row_from_json(row).row for row in rows),
                )
                for group, error, rows in verdicts
            ),
            revision,
            at,
        )


@dataclass(frozen=True, slots=True)
class WindowRepeat:
    """A maintenance window that may be asked for again, and what it displaced as bytes."""

    caller: str
    request_id: str
    request: bytes

    def pack(self, result: tuple[ReservationView, ...]) -> bytes:
        """Return the displaced reservations as bytes."""
        return json.dumps([row_to_json(StoredRow(row, "", 0)) for row in result]).encode()

    def unpack(self, stored: bytes) -> tuple[ReservationView, ...]:
        """Return what `pack` stored."""
        return tuple(row_from_json(row).row for row in json.loads(stored))
