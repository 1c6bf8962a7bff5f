"""Rows and feed payloads of the registry's tables, to the core's values and back."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tenure_core.agents.agent import Agent, Claim
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import (
    Allocation,
    AllocationState,
    Command,
    Report,
    ReportKind,
    Slot,
    Verb,
)
from tenure_core.leases.lease import OnLoss
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis

_MS_BYTES = 8


class Row(Protocol):
    """A database row, or anything else with columns by name."""

    def __getitem__(self, column: str, /) -> Any:
        """Return the value in a column."""
        ...


def facts_of(claim: Claim | Agent) -> str:
    """Return the JSON of what an agent claims and selects on."""
    return json.dumps(
        {
            "capacity": dict(claim.capacity.items()),
            "attributes": list(claim.attributes),
            "keeps": list(claim.suspended_keeps),
            "sealing_key": claim.sealing_key.hex(),
        },
        separators=(",", ":"),
        sort_keys=True,
    )


def agent_of(row: Row) -> Agent:
    """Return the agent in a row."""
    facts = json.loads(row["facts"])
    return Agent(
        agent=row["agent"],
        pool=row["pool"],
        incarnation=row["incarnation"],
        state=AgentState(row["state"]),
        cordoned=row["cordoned"],
        draining=row["draining"],
        capacity=ResourceVector(facts["capacity"]),
        attributes=tuple((key, value) for key, value in facts["attributes"]),
        suspended_keeps=tuple(facts["keeps"]),
        version=row["version"],
        session=row["session"],
        replica=row["replica"],
        contact_ms=row["contact_ms"],
        changed_ms=row["changed_ms"],
        sealing_key=bytes.fromhex(facts.get("sealing_key", "")),
    )


def agent_payload(agent: Agent) -> bytes:
    """Return an agent as it stands in the change feed."""
    return json.dumps(
        {
            "agent": agent.agent,
            "pool": agent.pool,
            "incarnation": agent.incarnation,
            "state": agent.state.value,
            "cordoned": agent.cordoned,
            "draining": agent.draining,
            "facts": facts_of(agent),
            "version": agent.version,
            "session": agent.session,
            "replica": agent.replica,
            "contact_ms": agent.contact_ms,
            "changed_ms": agent.changed_ms,
        },
        separators=(",", ":"),
    ).encode()


def agent_of_payload(payload: bytes) -> Agent:
    """Return the agent in a change feed's payload."""
    return agent_of(json.loads(payload))


def command_of(row: Row) -> Command:
    """Return the command in a row."""
    return Command(
        command_id=row["command_id"],
        agent=row["agent"],
        slot=Slot(row["lease"], row["attempt"], row["rank"]),
        verb=Verb(row["verb"]),
        epoch=row["epoch"],
        valid_ms=row["valid_ms"],
        on_loss=OnLoss(row["on_loss"]),
        digest=bytes(row["digest"]),
        body=bytes(row["body"]),
    )


def report_of(row: Row) -> Report:
    """Return the report in a row of `reports`, or in the last-report columns of `allocations`."""
    return Report(
        report_id=row["report_id"],
        agent=row["agent"],
        command_id=row["command_id"],
        slot=Slot(row["lease"], row["attempt"], row["rank"]),
        kind=ReportKind(row["kind"]),
        sequence=row["sequence"],
        body=bytes(row["body"]),
    )


def allocation_of(row: Row) -> Allocation:
    """Return the allocation in a row."""
    return Allocation(
        slot=Slot(row["lease"], row["attempt"], row["rank"]),
        agent=row["agent"],
        pool=row["pool"],
        state=AllocationState(row["state"]),
        on_loss=OnLoss(row["on_loss"]),
        live=row["live"],
        started=row["started"],
        last=report_of(row) if row["report_id"] is not None else None,
        abandoned=row["abandoned_at"] is not None,
        owner=row["owner"],
        project=row["project"],
    )


def report_payload(report: Report, recorded_ms: Millis) -> bytes:
    """Return a report as it stands in the change feed: when recorded, facts, then the body."""
    facts = json.dumps(
        [
            report.report_id,
            report.agent,
            report.command_id,
            list(report.slot),
            report.kind.value,
            report.sequence,
        ],
        separators=(",", ":"),
    ).encode()
    return (
        recorded_ms.to_bytes(_MS_BYTES, "big") + len(facts).to_bytes(4, "big") + facts + report.body
    )


def report_of_payload(payload: bytes) -> tuple[Report, Millis]:
    """Return the report in a change feed's payload, and when it was recorded."""
    recorded_ms = int.from_bytes(payload[:_MS_BYTES], "big")
    end = _MS_BYTES + 4 + int.from_bytes(payload[_MS_BYTES : _MS_BYTES + 4], "big")
    report_id, agent, command_id, slot, kind, sequence = json.loads(payload[_MS_BYTES + 4 : end])
    report = Report(
        report_id, agent, command_id, Slot(*slot), ReportKind(kind), sequence, payload[end:]
    )
    return report, recorded_ms
