"""Messages of `tenure.autoscaler.v1` to the autoscaler's values and back."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tenure.autoscaler.v1 import machine_pb2
from tenure_autoscaler.values import (
    BOOT_MS_DEFAULT,
    IDLE_MS_DEFAULT,
    OBSERVE,
    Decision,
    ElasticPolicy,
    Group,
    GroupChange,
    GroupKind,
    Machine,
)
from tenure_core.resources import ResourceVector
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import bare, span_to_millis, to_duration, to_timestamp

PROVIDER_DEFAULT: Final = OBSERVE


_POLICY_SPANS: Final = {
    "lower_ms": "drain_lower_duration",
    "upper_ms": "drain_upper_duration",
    "startup_ms": "startup_duration",
    "transition_ms": "transition_duration",
    "shutdown_ms": "shutdown_duration",
    "interval_ms": "interval_duration",
    "in_window_ms": "in_window_duration",
    "in_cooldown_ms": "in_cooldown_duration",
}


def elastic_policy(message: machine_pb2.ElasticPolicy) -> ElasticPolicy:
    """Return a valid message as how an elastic group is kept."""
    given = {
        name: span_to_millis(getattr(message, field))
        for name, field in _POLICY_SPANS.items()
        if message.HasField(field)  # type: ignore[arg-type]  # a field's name, not a literal
    }
    return ElasticPolicy(message.application, **given)


def _policy_message(policy: ElasticPolicy) -> machine_pb2.ElasticPolicy:
    message = machine_pb2.ElasticPolicy(application=policy.application)
    for name, field in _POLICY_SPANS.items():
        getattr(message, field).CopyFrom(to_duration(getattr(policy, name)))
    return message


def new_group(message: machine_pb2.Group, now_ms: Millis) -> Group:
    """Return a valid message as a new group."""
    elastic = message.kind == machine_pb2.Group.KIND_ELASTIC
    return Group(
        bare(message.name),
        GroupKind.ELASTIC if elastic else GroupKind.POOL,
        bare(message.pool),
        message.size_min,
        message.size_max,
        message.provider or PROVIDER_DEFAULT,
        ResourceVector(message.amounts),
        span_to_millis(message.boot_duration)
        if message.HasField("boot_duration")
        else BOOT_MS_DEFAULT,
        paused=False,
        dry_run=message.dry_run,
        version=1,
        created_ms=now_ms,
        idle_ms=span_to_millis(message.idle_duration)
        if message.HasField("idle_duration")
        else IDLE_MS_DEFAULT,
        elastic=elastic_policy(message.elastic) if message.HasField("elastic") else None,
    )


def group_change(message: machine_pb2.Group, paths: Collection[str]) -> GroupChange:
    """Return what a valid update asks for; without paths, the fields that are populated."""
    if not paths:
        paths = {field.name for field, _ in message.ListFields()}
    return GroupChange(
        size_min=message.size_min if "size_min" in paths else None,
        size_max=message.size_max if "size_max" in paths else None,
        amounts=ResourceVector(message.amounts) if "amounts" in paths else None,
        boot_ms=span_to_millis(message.boot_duration) if "boot_duration" in paths else None,
        idle_ms=span_to_millis(message.idle_duration) if "idle_duration" in paths else None,
        dry_run=message.dry_run if "dry_run" in paths else None,
        elastic=elastic_policy(message.elastic) if "elastic" in paths else None,
    )


def group_message(group: Group) -> machine_pb2.Group:
    """Return a group as a message."""
    return machine_pb2.Group(
        name=f"groups/{group.group}",
        kind=machine_pb2.Group.Kind.Value(f"KIND_{group.kind.value}"),
        pool=f"pools/{group.pool}",
        size_min=group.size_min,
        size_max=group.size_max,
        provider=group.provider,
        amounts=dict(group.amounts.items()),
        boot_duration=to_duration(group.boot_ms),
        paused=group.paused,
        etag=str(group.version),
        create_time=to_timestamp(group.created_ms),
        dry_run=group.dry_run,
        idle_duration=to_duration(group.idle_ms),
        elastic=None if group.elastic is None else _policy_message(group.elastic),
    )


def machine_message(machine: Machine) -> machine_pb2.Machine:
    """Return a machine as a message."""
    return machine_pb2.Machine(
        name=f"machines/{machine.machine}",
        group=f"groups/{machine.group}" if machine.group else "",
        pool=machine.pool,
        state=machine_pb2.Machine.State.Value(f"STATE_{machine.state.value}"),
        agent=f"agents/{machine.machine}",
        node=f"nodes/{machine.machine}",
        amounts=dict(machine.amounts.items()),
        change_time=to_timestamp(machine.changed_ms),
        version=machine.version,
        provider_id=machine.provider_id,
    )


def decision_message(decision: Decision) -> machine_pb2.Decision:
    """Return a decision as a message."""
    return machine_pb2.Decision(
        name=f"decisions/{decision.number}",
        subject=decision.subject,
        decide_time=to_timestamp(decision.decided_ms),
        current_count=decision.current,
        target_count=decision.target,
        rule=decision.rule,
        message=decision.message,
        inputs=dict(decision.inputs),
        enacted=decision.enacted,
        results=dict(decision.results),
    )
