"""Requests about quotas → violations: the limits stated beside their fields in the contract."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tenure.admission.v1 import admission_pb2 as calls
from tenure.admission.v1 import quota_pb2 as pb
from tenure_admission import part_validation as parts
from tenure_admission import validation
from tenure_admission.convert_quotas import PERIOD_OF_WIRE, subject_of
from tenure_admission.records import HELD_LEASES, OPEN_LEASES, WAITING_LEASES
from tenure_core.errors import Violation
from tenure_core.resources import AMOUNT_MAX, KINDS_MAX, is_kind
from tenure_core.timebase import DAY_MS, MINUTE_MS

WEEKLY_MAX: Final = 28
COUNTS: Final = frozenset({HELD_LEASES, OPEN_LEASES, WAITING_LEASES})
_NAME: Final = re.compile(r"quotas/[a-z0-9]([a-z0-9.-]{0,125}[a-z0-9])?")


def put(request: calls.SetQuotaRequest) -> list[Violation]:
    """Return what is wrong with a quota to set."""
    quota = request.quota
    found = [*quota_name("quota.name", quota.name), *validation.request_id(request.request_id)]
    if subject_of(quota) is None:
        found.append(Violation("quota.subject", "REQUIRED", "is an owner or a project"))
    else:
        found += subject("quota.", quota)
    if quota.limits or not quota.budgets:
        found += limits("quota.limits", quota.limits)
    if quota.budgets:
        found += limits("quota.budgets", quota.budgets)
    for name in sorted(COUNTS & quota.budgets.keys()):
        text = "counts leases; a budget is of a kind of resource"
        found.append(Violation(f"quota.budgets[{name}]", "KIND_INVALID", text))
    if quota.period not in PERIOD_OF_WIRE:
        found.append(Violation("quota.period", "VALUE_UNKNOWN", "is DAY, WEEK or MONTH"))
    found += weekly(quota)
    if quota.HasField("valid_interval"):
        found += parts.interval("quota.valid_interval", quota.valid_interval)
    return found


def weekly(quota: pb.Quota) -> Iterator[Violation]:
    """Yield what is wrong with the spans of every week, and with the zone of their clocks."""
    if len(quota.weekly_spans) > WEEKLY_MAX:
        yield Violation("quota.weekly_spans", "TOO_MANY", f"has at most {WEEKLY_MAX} spans")
    for index, span in enumerate(quota.weekly_spans):
        path = f"quota.weekly_spans[{index}]"
        if not 1 <= span.day <= 7:
            yield Violation(f"{path}.day", "OUT_OF_RANGE", "is 1 for Monday to 7 for Sunday")
        yield from parts.length(f"{path}.start_offset", span.start_offset, 0, DAY_MS - 1)
        yield from parts.length(f"{path}.duration", span.duration, MINUTE_MS, 7 * DAY_MS)
    if quota.time_zone and not is_zone(quota.time_zone):
        text = "names a zone of the IANA database, as in Europe/Berlin"
        yield Violation("quota.time_zone", "NAME_INVALID", text)


def is_zone(name: str) -> bool:
    """Say whether there is a zone of this name."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return False
    return True


def quota_name(field: str, given: str) -> Iterator[Violation]:
    """Yield what is wrong with the name of a quota."""
    if not _NAME.fullmatch(given):
        text = "is quotas/{id}, 1 to 127 lower case letters, digits, hyphens and dots"
        yield Violation(field, "NAME_INVALID", text)


def subject(
    prefix: str, message: pb.Quota | calls.ListQuotasRequest | calls.GetUsageRequest
) -> Iterator[Violation]:
    """Yield what is wrong with who a message is about; nobody is fine."""
    given = subject_of(message)
    if given is None:
        return
    dimension, name = given
    if not name:
        yield Violation(f"{prefix}{dimension}", "REQUIRED", f"names the {dimension}")
    yield from parts.label(f"{prefix}{dimension}", name)


def limits(field: str, given: Mapping[str, int]) -> Iterator[Violation]:
    """Yield what is wrong with the limits of a quota."""
    if not given:
        yield Violation(field, "REQUIRED", "limits some resource")
    if len(given) > KINDS_MAX:
        yield Violation(field, "TOO_MANY", f"names at most {KINDS_MAX} resources")
    for resource, amount in given.items():
        path = f"{field}[{resource[:64]}]"
        if not is_kind(resource):
            yield Violation(path, "KIND_INVALID", "names a kind of resource")
        if not 0 <= amount <= AMOUNT_MAX:
            yield Violation(path, "OUT_OF_RANGE", f"is 0 to {AMOUNT_MAX}")


def delete(request: calls.DeleteQuotaRequest) -> list[Violation]:
    """Return what is wrong with a deletion."""
    return [*quota_name("name", request.name), *validation.request_id(request.request_id)]
