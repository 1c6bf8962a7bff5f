"""Quotas and usage ⇄ their wire forms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import quota_pb2 as pb
from tenure_admission.budgets import hours
from tenure_admission.charges import OWNER, PROJECT, Drift, Excess
from tenure_admission.quotas import Quota, ResourceStanding, Standing, Subject, WantedQuota
from tenure_core.recurrence.weekly import WeeklySpan
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import (
    bare,
    from_interval,
    span_to_millis,
    to_duration,
    to_interval,
    to_timestamp,
)

INT64_MAX: Final = 2**63 - 1
DRIFTS_MAX: Final = 1_000
PERIOD_OF_WIRE: Final = {
    pb.Quota.PERIOD_UNSPECIFIED: "month",
    pb.Quota.PERIOD_DAY: "day",
    pb.Quota.PERIOD_WEEK: "week",
    pb.Quota.PERIOD_MONTH: "month",
}
_PERIODS: Final = {name: number for number, name in PERIOD_OF_WIRE.items()}


def subject_of(
    message: pb.Quota | calls.ListQuotasRequest | calls.GetUsageRequest,
) -> Subject | None:
    """Return who a message is about; None when it does not say."""
    match message.WhichOneof("subject"):
        case "owner":
            return OWNER, message.owner
        case "project":
            return PROJECT, message.project
        case _:
            return None


def wanted_of(quota: pb.Quota) -> WantedQuota:
    """Return a valid quota as it is asked for."""
    subject = subject_of(quota)
    assert subject is not None, "validated"
    valid = to_interval(quota.valid_interval) if quota.HasField("valid_interval") else None
    return WantedQuota(
        bare(quota.name),
        subject,
        dict(quota.limits),
        valid,
        quota.etag,
        dict(quota.budgets),
        PERIOD_OF_WIRE[quota.period],
        tuple(
            WeeklySpan(
                each.day - 1, span_to_millis(each.start_offset), span_to_millis(each.duration)
            )
            for each in quota.weekly_spans
        ),
        quota.time_zone or "UTC",
    )


def quota_to_wire(quota: Quota) -> pb.Quota:
    """Return a quota."""
    message = pb.Quota(
        name=f"quotas/{quota.id}",
        limits=dict(quota.limits),
        valid_interval=None if quota.valid is None else from_interval(quota.valid),
        etag=quota.etag,
        create_time=to_timestamp(quota.created),
        update_time=to_timestamp(quota.updated),
        budgets=dict(quota.budgets),
        period=_PERIODS[quota.period] if quota.budgets else pb.Quota.PERIOD_UNSPECIFIED,
        weekly_spans=[
            pb.WeeklySpan(
                day=each.day + 1,
                start_offset=to_duration(each.start_ms),
                duration=to_duration(each.duration_ms),
            )
            for each in quota.weekly
        ],
        time_zone=quota.zone if quota.weekly else "",
    )
    _say_subject(message, quota.subject)
    return message


def _say_subject(message: pb.Quota | pb.Usage, subject: Subject) -> None:
    dimension, name = subject
    if dimension == OWNER:
        message.owner = name
    else:
        message.project = name


def usage_to_wire(standing: Standing) -> pb.Usage:
    """Return where a subject stands."""
    message = pb.Usage(
        resources=[_resource_to_wire(each) for each in standing.resources],
        held_back_leases=[f"leases/{each}" for each in standing.held_back],
        budgets=[
            pb.BudgetUsage(
                resource=each.limit.resource,
                charged=_int64(hours(each.charged)),
                limit=each.limit.amount,
                quota=f"quotas/{each.limit.quota}",
                period_interval=from_interval(each.period),
            )
            for each in standing.budgets
        ],
    )
    _say_subject(message, standing.subject)
    return message


def _resource_to_wire(each: ResourceStanding) -> pb.ResourceUsage:
    return pb.ResourceUsage(
        resource=each.resource,
        used=_int64(each.used),
        peak=_int64(each.peak),
        peak_time=to_timestamp(each.peak_at),
        charged=_int64(each.charged),
        limit=None if each.limit is None else each.limit.amount,
        quota="" if each.limit is None else f"quotas/{each.limit.quota}",
        over_time=None if each.over_at is None else to_timestamp(each.over_at),
    )


def excess_to_wire(excess: Excess) -> pb.QuotaExcess:
    """Return how a charge would be more than a quota allows."""
    budget = bool(excess.limit.period)
    return pb.QuotaExcess(
        quota=f"quotas/{excess.limit.quota}",
        resource=excess.limit.resource,
        limit=excess.limit.amount,
        used=_int64(hours(excess.used) if budget else excess.used),
        asked=_int64(hours(excess.asked) if budget else excess.asked),
        time=to_timestamp(excess.at),
        budget=budget,
    )


def drifts_to_wire(drifts: Iterable[Drift], now: Millis) -> calls.VerifyUsageResponse:
    """Return what a comparison of the ledger found, cut to what an answer holds."""
    found = []
    for drift in drifts:
        dimension, name, resource = drift.account
        found.append(
            pb.UsageDrift(
                dimension=dimension,
                name=name,
                resource=resource,
                stored=_int64(drift.stored),
                recomputed=_int64(drift.recomputed),
            )
        )
    return calls.VerifyUsageResponse(drifts=found[:DRIFTS_MAX], verify_time=to_timestamp(now))


def _int64(amount: int) -> int:
    """Return a sum as the wire can hold it: sums of many leases have no largest value."""
    return min(amount, INT64_MAX)
