"""Rows and feed payloads of the autoscaler's tables, to its values and back; and its refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Protocol

from tenure_autoscaler.values import (
    Decision,
    ElasticPolicy,
    Group,
    GroupChange,
    GroupKind,
    Machine,
    MachineState,
)
from tenure_core.audit.entry import AuditedChange
from tenure_core.autoscaling.plain_form import from_plain, to_plain
from tenure_core.errors import AlreadyExists, Conflict, Invalid, NotFound, Violation, WrongState
from tenure_core.resources import ResourceVector
from tenure_runtime.audit.trail import json_change


class Row(Protocol):
    """A database row, or anything else with columns by name."""

    def __getitem__(self, column: str, /) -> Any:
        """Return the value in a column."""
        ...


def amounts_text(amounts: ResourceVector) -> str:
    """Return amounts as JSON."""
    return json.dumps(dict(amounts.items()), sort_keys=True)


def group_of(row: Row) -> Group:
    """Return the group in a row."""
    return Group(
        row["group_id"],
        GroupKind(row["kind"]),
        row["pool"],
        row["size_min"],
        row["size_max"],
        row["provider"],
        ResourceVector(json.loads(row["amounts"])),
        row["boot_ms"],
        row["paused"],
        row["dry_run"],
        row["version"],
        row["created_ms"],
        row["idle_ms"],
        _elastic_of(row["elastic"]),
    )


def elastic_text(policy: ElasticPolicy | None) -> str | None:
    """Return how an elastic group is kept as JSON, None for other groups."""
    return None if policy is None else json.dumps(to_plain(policy), sort_keys=True)


def _elastic_of(text: str | None) -> ElasticPolicy | None:
    return None if text is None else from_plain(ElasticPolicy, json.loads(text))


def group_text(group: Group) -> bytes:
    """Return a group as the answer that a repeat of its creation gets."""
    return json.dumps(
        {
            "group_id": group.group,
            "kind": group.kind.value,
            "pool": group.pool,
            "size_min": group.size_min,
            "size_max": group.size_max,
            "provider": group.provider,
            "amounts": amounts_text(group.amounts),
            "boot_ms": group.boot_ms,
            "paused": group.paused,
            "dry_run": group.dry_run,
            "version": group.version,
            "created_ms": group.created_ms,
            "idle_ms": group.idle_ms,
            "elastic": elastic_text(group.elastic),
        }
    ).encode()


def group_audited(before: Group | None, after: Group | None) -> AuditedChange:
    """Return a change of a group for the audit trail."""
    one = after or before
    assert one is not None, "a change is of something"

    def text(group: Group | None) -> bytes | None:
        return None if group is None else group_text(group)

    return json_change(f"groups/{one.group}", text(before), text(after))


def machine_of(row: Row) -> Machine:
    """Return the machine in a row."""
    return Machine(
        row["machine"],
        row["group_id"],
        row["pool"],
        MachineState(row["state"]),
        ResourceVector(json.loads(row["amounts"])),
        row["changed_ms"],
        row["version"],
        row["provider_id"],
    )


def machine_payload(machine: Machine) -> bytes:
    """Return a machine as it stands in the change feed."""
    return json.dumps(
        {
            "machine": machine.machine,
            "group_id": machine.group,
            "pool": machine.pool,
            "state": machine.state.value,
            "amounts": amounts_text(machine.amounts),
            "changed_ms": machine.changed_ms,
            "version": machine.version,
            "provider_id": machine.provider_id,
        }
    ).encode()


def decision_of(row: Row) -> Decision:
    """Return the decision in a row."""
    return Decision(
        row["subject"],
        row["decided_ms"],
        row["current"],
        row["target"],
        row["rule"],
        row["message"],
        tuple(sorted(json.loads(row["inputs"]).items())),
        row["enacted"],
        row["number"],
        tuple(sorted(json.loads(row["results"]).items())),
    )


def changed_group(before: Group, change: GroupChange, version: int | None) -> Group:
    """Return a group after a change. Raises Conflict ETAG_MISMATCH, Invalid for its sizes."""
    check_version(before, version)
    given = {
        name: value
        for name in (
            "size_min",
            "size_max",
            "amounts",
            "boot_ms",
            "idle_ms",
            "dry_run",
            "elastic",
            "paused",
        )
        if (value := getattr(change, name)) is not None
    }
    after = replace(before, **given)
    if after.elastic is not None and after.kind is not GroupKind.ELASTIC:
        raise Invalid([Violation("group.elastic", "NOT_ALLOWED", "is for ELASTIC groups")])
    if after.size_min > after.size_max:
        found = Violation("group.size_min", "OUT_OF_RANGE", f"at most {after.size_max}, size_max")
        raise Invalid([found])
    return before if after == before else replace(after, version=before.version + 1)


def check_version(group: Group, version: int | None) -> None:
    """Raise Conflict ETAG_MISMATCH unless the group has the version given, if one is."""
    if version is not None and version != group.version:
        raise Conflict("ETAG_MISMATCH", "The group has changed; read it again.", group=group.group)


def same_but_version(one: Machine, other: Machine) -> bool:
    """Say whether two sights of a machine tell the same."""
    return replace(one, version=0) == replace(other, version=0)


def says_the_same(last: Decision, decision: Decision) -> bool:
    """Say whether a decision adds nothing to the last one of its subject."""
    return not decision.enacted and (last.current, last.target, last.rule) == (
        decision.current,
        decision.target,
        decision.rule,
    )


def group_not_found(group: str) -> NotFound:
    """Return the error of a group that does not exist."""
    return NotFound("GROUP_NOT_FOUND", f"There is no group {group}.", group=group)


def group_exists(group: str) -> AlreadyExists:
    """Return the error of a group's id that is taken."""
    return AlreadyExists("GROUP_EXISTS", f"There is a group {group} already.", group=group)


def group_in_use(group: str) -> WrongState:
    """Return the error of a group that still has machines."""
    return WrongState(
        "GROUP_IN_USE",
        f"Group {group} still has machines or offers nodes; set its largest size to 0 first.",
        group=group,
    )
