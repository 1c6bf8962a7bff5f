"""The bytes under which an answer about a quota is remembered for repeats, and its refusal."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import astuple, replace
from typing import Any

from tenure_admission.quotas import Quota
from tenure_core.errors import NotFound
from tenure_core.recurrence.weekly import WeeklySpan
from tenure_core.timebase import Interval
from tenure_runtime.postgres.transaction import Transaction

Effect = Callable[[Transaction], Awaitable[Quota]]


def bytes_of(quota: Quota) -> bytes:
    """Return a quota as bytes."""
    valid = None if quota.valid is None else [quota.valid.start, quota.valid.end]
    return json.dumps(
        [
            quota.id,
            list(quota.subject),
            dict(quota.limits),
            valid,
            quota.version,
            quota.created,
            quota.updated,
            dict(quota.budgets),
            quota.period,
            [astuple(span) for span in quota.weekly],
            quota.zone,
        ],
        separators=(",", ":"),
    ).encode()


def quota_of(answer: bytes) -> Quota:
    """Return the quota in the bytes."""
    stored: list[Any] = json.loads(answer)
    quota_id, (dimension, name), limits, valid, version, created, updated, *rest = stored
    span = None if valid is None else Interval(*valid)
    quota = Quota(quota_id, (dimension, name), limits, span, version, created, updated)
    if not rest:
        # An answer of the version before budgets.
        return quota
    budgets, period, weekly, zone = rest
    spans = tuple(WeeklySpan(*each) for each in weekly)
    return replace(quota, budgets=budgets, period=period, weekly=spans, zone=zone)


def quota_not_found(quota_id: str) -> NotFound:
    """Return the error of a quota that does not exist."""
    name = f"quotas/{quota_id}"
    return NotFound("QUOTA_NOT_FOUND", f"{name} does not exist.", name=name)
