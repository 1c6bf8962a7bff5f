"""Records of machines and memories of fleets, to rows and back."""

from __future__ import annotations

import json
from typing import Any

from tenure_autoscaler.records import FleetMemory, MachineRecord
from tenure_core.autoscaling.plain_form import from_plain, to_plain


def record_text(record: MachineRecord) -> str:
    """Return a record as JSON."""
    return json.dumps(to_plain(record))


def record_of(body: Any) -> MachineRecord:
    """Return the record in a row's body."""
    return from_plain(MachineRecord, json.loads(body))


def memory_text(memory: FleetMemory) -> str:
    """Return a fleet's memory as JSON."""
    return json.dumps(to_plain(memory))


def memory_of(body: Any) -> FleetMemory:
    """Return the memory in a row's body."""
    return from_plain(FleetMemory, json.loads(body))
