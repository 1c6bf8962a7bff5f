"""Requests of `tenure.autoscaler.v1` to lists of what is wrong: everything, not the first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration

from tenure.autoscaler.v1 import autoscaler_pb2, machine_pb2
from tenure_autoscaler.convert import elastic_policy
from tenure_autoscaler.values import OBSERVE
from tenure_core.errors import Invalid, Violation
from tenure_core.resources import AMOUNT_MAX, KINDS_MAX, is_kind

SIZE_MAX: Final = 10_000
SPAN_S_MAX: Final = 86_400
APPLICATION_MAX: Final = 1_024
_GROUP: Final = re.compile(r"[a-z0-9-]{1,63}")
_POOL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PROVIDER: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_REQUEST: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ETAG: Final = re.compile(r"[0-9]{1,18}")
_MASK: Final = frozenset(
    {"size_min", "size_max", "amounts", "boot_duration", "idle_duration", "dry_run", "elastic"}
)


def create_group(request: autoscaler_pb2.CreateGroupRequest) -> None:
    """Check a new group. Raises Invalid with everything that is wrong."""
    group = request.group
    found = [*_name(group.name, "group.name")]
    if not group.pool.startswith("pools/") or not _POOL.fullmatch(group.pool[6:]):
        found.append(Violation("group.pool", "NAME_INVALID", "must be pools/{id}"))
    if group.kind not in machine_pb2.Group.Kind.values():
        found.append(Violation("group.kind", "KIND_INVALID", "must be POOL or ELASTIC"))
    if group.provider and not _PROVIDER.fullmatch(group.provider):
        found.append(Violation("group.provider", "NAME_INVALID", "must be a provider's name"))
    if request.request_id and not _REQUEST.fullmatch(request.request_id):
        found.append(Violation("request_id", "NOT_A_UUID", "must be a UUID"))
    found += _sizes(group) + _amounts(group.amounts)
    for field in ("boot_duration", "idle_duration"):
        if group.HasField(field):
            found += _span(getattr(group, field), field)
    elastic = group.kind == machine_pb2.Group.KIND_ELASTIC
    if elastic and group.HasField("elastic"):
        found += _policy(group.elastic)
    elif elastic and group.provider not in ("", OBSERVE):
        found.append(Violation("group.elastic", "REQUIRED", "says how such a group is kept"))
    elif group.HasField("elastic"):
        found.append(Violation("group.elastic", "NOT_ALLOWED", "is for ELASTIC groups"))
    _raise(found)


def update_group(request: autoscaler_pb2.UpdateGroupRequest) -> None:
    """Check a change of a group. Raises Invalid with everything that is wrong."""
    group, paths = request.group, set(request.update_mask.paths)
    found = _name(group.name, "group.name") + _etag(group.etag, "group.etag")
    for path in sorted(paths - _MASK):
        found.append(Violation("update_mask", "FIELD_NOT_CHANGEABLE", f"{path} cannot be changed"))
    if not paths:
        paths = {field.name for field, _ in group.ListFields()}
        fixed = paths & {"kind", "pool", "provider"}
        for path in sorted(fixed):
            found.append(Violation(f"group.{path}", "FIELD_NOT_CHANGEABLE", "cannot be changed"))
    if paths & {"size_min", "size_max"}:
        found += _sizes(group, both={"size_min", "size_max"} <= paths)
    if "amounts" in paths:
        found += _amounts(group.amounts)
    if "elastic" in paths:
        found += _policy(group.elastic)
    for field in sorted({"boot_duration", "idle_duration"} & paths):
        found += _span(getattr(group, field), field)
    _raise(found)


def delete_group(request: autoscaler_pb2.DeleteGroupRequest) -> None:
    """Check what is to be forgotten."""
    _raise(_name(request.name, "name") + _etag(request.etag, "etag"))


def group_name(name: str) -> None:
    """Check the name of a group."""
    _raise(_name(name, "name"))


def _raise(found: Collection[Violation]) -> None:
    if found:
        raise Invalid(list(found))


def _name(name: str, field: str) -> list[Violation]:
    if name.startswith("groups/") and _GROUP.fullmatch(name[7:]):
        return []
    wanted = "must be groups/{id}: 1 to 63 lower case letters, digits and hyphens"
    return [Violation(field, "NAME_INVALID", wanted)]


def _etag(etag: str, field: str) -> list[Violation]:
    if not etag or _ETAG.fullmatch(etag):
        return []
    return [Violation(field, "ETAG_INVALID", "must be an etag that the service returned")]


def _sizes(group: machine_pb2.Group, *, both: bool = True) -> list[Violation]:
    found = [
        Violation(f"group.{field}", "OUT_OF_RANGE", f"must be 0 to {SIZE_MAX}")
        for field, size in (("size_min", group.size_min), ("size_max", group.size_max))
        if not 0 <= size <= SIZE_MAX
    ]
    if both and not found and group.size_min > group.size_max:
        found.append(Violation("group.size_min", "OUT_OF_RANGE", "must be at most size_max"))
    return found


def _amounts(amounts: Mapping[str, int]) -> list[Violation]:
    found = []
    if not 1 <= len(amounts) <= KINDS_MAX:
        found.append(Violation("group.amounts", "COUNT", f"must name 1 to {KINDS_MAX} kinds"))
    for kind, amount in sorted(amounts.items()):
        if not is_kind(kind) or not 0 < amount <= AMOUNT_MAX:
            wanted = f"must be a kind with an amount of 1 to {AMOUNT_MAX}"
            found.append(Violation(f"group.amounts[{kind[:63]}]", "AMOUNT_INVALID", wanted))
    return found


def _policy(policy: machine_pb2.ElasticPolicy) -> list[Violation]:
    """Check each value, and only then whether they go together."""
    found = []
    try:
        words = shlex.split(policy.application)
    except ValueError:
        words = []
    if not words or len(policy.application) > APPLICATION_MAX:
        wanted = f"must be a program with its arguments, at most {APPLICATION_MAX} characters"
        found.append(Violation("group.elastic.application", "TEXT_INVALID", wanted))
    for descriptor, value in policy.ListFields():
        if isinstance(value, Duration) and not (
            1 <= value.seconds <= SPAN_S_MAX and value.nanos >= 0
        ):
            field = f"group.elastic.{descriptor.name}"
            found.append(Violation(field, "OUT_OF_RANGE", "must be 1 second to 24 hours"))
    kept = elastic_policy(policy)
    if not found and kept.lower_ms > kept.upper_ms:
        wanted = "must be at most drain_upper_duration"
        found.append(Violation("group.elastic.drain_lower_duration", "OUT_OF_RANGE", wanted))
    return found


def _span(length: Duration, field: str) -> list[Violation]:
    if 0 <= length.seconds <= SPAN_S_MAX and length.nanos >= 0:
        return []
    return [Violation(f"group.{field}", "OUT_OF_RANGE", "must be 0 to 24 hours")]
