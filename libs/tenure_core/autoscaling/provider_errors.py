"""What a provider's refusal means, and how long to leave it alone (P18).

Every refusal falls into one class; each class has its own back-off, kept for one machine type and
zone, so that a stock-out of one never stops another. Retrying and falling back is the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tenure_core.timebase import HOUR_MS, MINUTE_MS, SECOND_MS, Millis


class ProviderErrorClass(StrEnum):
    """Why a provider did not do what it was asked."""

    QUOTA = "QUOTA"
    CAPACITY = "CAPACITY"
    THROTTLE = "THROTTLE"
    AUTH = "AUTH"
    BAD_REQUEST = "BAD_REQUEST"
    UNCLEAR = "UNCLEAR"


_CODES: dict[ProviderErrorClass, frozenset[str]] = {
    ProviderErrorClass.QUOTA: frozenset(
        {"QUOTAEXCEEDED", "INSTANCELIMITEXCEEDED", "VCPULIMITEXCEEDED", "LIMITEXCEEDED",
         "MAXSPOTINSTANCECOUNTEXCEEDED", "USERQUOTA"}
    ),
    ProviderErrorClass.CAPACITY: frozenset(
        {"INSUFFICIENTINSTANCECAPACITY", "INSUFFICIENTCAPACITY", "ZONERESOURCEPOOLEXHAUSTED",
         "NOHOST", "OUTOFSTOCK", "INSUFFICIENTHOSTCAPACITY", "SPOTMAXPRICETOOLOW"}
    ),
    ProviderErrorClass.THROTTLE: frozenset(
        {"REQUESTLIMITEXCEEDED", "THROTTLING", "THROTTLED", "TOOMANYREQUESTS",
         "RATELIMITEXCEEDED", "SLOWDOWN"}
    ),
    ProviderErrorClass.AUTH: frozenset(
        {"UNAUTHORIZEDOPERATION", "AUTHFAILURE", "ACCESSDENIED", "FORBIDDEN",
         "UNAUTHENTICATED", "EXPIREDTOKEN", "AUTHENTICATION", "AUTHORIZATION"}
    ),
    ProviderErrorClass.BAD_REQUEST: frozenset(
        {"INVALIDPARAMETERVALUE", "INVALIDPARAMETER", "VALIDATIONERROR", "MALFORMED",
         "INVALIDAMIID", "UNSUPPORTED", "BADREQUEST", "NOTFOUND"}
    ),
}  # fmt: skip


def error_class(code: str) -> ProviderErrorClass:
    """Return the class of a provider's error code; what is not known is UNCLEAR.

    UNCLEAR means that the request may have been carried out: look it up by token before a retry.
    """
    word = "".join(letter for letter in code.upper() if letter.isalnum())
    for found, codes in _CODES.items():
        if word in codes:
            return found
    return ProviderErrorClass.UNCLEAR


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """First wait, longest wait, and how long without a failure makes a clean slate."""

    first_ms: Millis
    longest_ms: Millis
    forgiven_after_ms: Millis = 3 * HOUR_MS


BACKOFF: dict[ProviderErrorClass, BackoffPolicy] = {
    ProviderErrorClass.QUOTA: BackoffPolicy(5 * MINUTE_MS, 30 * MINUTE_MS),
    ProviderErrorClass.CAPACITY: BackoffPolicy(2 * MINUTE_MS, 30 * MINUTE_MS),
    ProviderErrorClass.THROTTLE: BackoffPolicy(5 * SECOND_MS, 5 * MINUTE_MS),
    ProviderErrorClass.AUTH: BackoffPolicy(5 * MINUTE_MS, 60 * MINUTE_MS),
    ProviderErrorClass.BAD_REQUEST: BackoffPolicy(10 * MINUTE_MS, 60 * MINUTE_MS),
    ProviderErrorClass.UNCLEAR: BackoffPolicy(30 * SECOND_MS, 10 * MINUTE_MS),
}
"""Waits by class: throttling passes soon, a wrong request or credential needs a person."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long one machine type in one zone is left alone; durable, so a restart keeps it."""

    failures: int = 0
    until_ms: Millis = 0
    last_failure_ms: Millis = 0
    cause: ProviderErrorClass | None = None

    def open_at(self, now_ms: Millis) -> bool:
        """Say whether the provider may be asked again at `now_ms`."""
        return now_ms >= self.until_ms


def after_failure(backoff: Backoff, cause: ProviderErrorClass, *, now_ms: Millis) -> Backoff:
    """Return the back-off after one more failure: the wait doubles up to the class's longest."""
    policy = BACKOFF[cause]
    quiet = now_ms - backoff.last_failure_ms > policy.forgiven_after_ms
    failures = 1 if backoff.failures == 0 or quiet else backoff.failures + 1
    wait = min(policy.longest_ms, policy.first_ms << min(failures - 1, 30))
    return Backoff(failures, now_ms + wait, now_ms, cause)


CLEAN = Backoff()
"""The slate once the provider has delivered again."""
