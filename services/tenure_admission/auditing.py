"""Leases, quotas, keys as the audit trail has them: without secrets, and as JSON for whoever reads.

Decides what of a lease is hidden: the values of its environment, and what its command gives to
options and variables that are named like secrets. Everything else is kept as stored.
"""

from __future__ import annotations

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from tenure.admission.v1 import lease_pb2 as pb
from tenure_admission.convert_identity import key_to_wire
from tenure_admission.convert_quotas import quota_to_wire
from tenure_admission.quotas import Quota
from tenure_core.audit.entry import AuditedChange
from tenure_core.identity.api_keys import ApiKey
from tenure_core.secrets import HIDDEN, hide_in_command
from tenure_runtime.audit.trail import json_change

_LEASES = "leases/"


def hidden(lease: pb.Lease) -> bytes | None:
    """Return a lease's bytes with its secrets hidden; None when there is nothing to hide."""
    if not lease.HasField("work"):
        return None
    work = lease.work
    command = list(work.command)
    shown = hide_in_command(command)
    if not work.environment and shown == command:
        return None
    told = pb.Lease()
    told.CopyFrom(lease)
    for name in work.environment:
        told.work.environment[name] = HIDDEN
    told.work.command[:] = shown
    return told.SerializeToString()


def lease_change(lease_id: str, before: bytes, after: bytes) -> AuditedChange:
    """Return a change of a stored lease, given its bytes."""

    def shown(body: bytes) -> bytes:
        return hidden(pb.Lease.FromString(body)) or body

    return AuditedChange(_LEASES + lease_id, shown(before), shown(after))


def quota_change(before: Quota | None, after: Quota | None) -> AuditedChange:
    """Return a change of a quota."""
    one = after or before
    assert one is not None, "a change is of something"
    return json_change(f"quotas/{one.id}", _quota(before), _quota(after))


def key_change(before: ApiKey | None, after: ApiKey) -> AuditedChange:
    """Return a change of an API key; nothing of its secret is in it."""
    was = None if before is None else _json(key_to_wire(before))
    return json_change(f"apiKeys/{after.id}", was, _json(key_to_wire(after)))


def _quota(quota: Quota | None) -> bytes | None:
    return None if quota is None else _json(quota_to_wire(quota))


def _json(message: Message) -> bytes:
    return MessageToJson(message, indent=None, preserving_proto_field_name=True).encode()


def shown(resource: str, body: bytes) -> str:
    """Return what the trail holds of a resource as JSON."""
    if resource.startswith(_LEASES):
        return _json(pb.Lease.FromString(body)).decode()
    return body.decode()
