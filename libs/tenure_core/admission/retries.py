"""Whether a step that failed is tried again, has taken too long, or is given up.

`after_failure` is our rule: per step it counts real attempts since the step last succeeded,
whatever else was recorded in between, and measures time from the first of them. A wait in the
queue ends by its own limit alone (`overdue`).

`classify` and `record` are the ancestor's rule, which looks at the last record of any step only;
one skip, another error or another step in between starts its counter again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

ATTEMPTS_DEFAULT: Final = 5
"""How many failures are tried again when no policy says otherwise."""


class Verdict(Enum):
    """What follows from one try."""

    SUCCESS = "SUCCESS"
    SKIPPED = "SKIPPED"
    NEED_RETRY = "NEED_RETRY"
    EXPIRED = "EXPIRED"
    GIVE_UP = "GIVE_UP"


class TryOutcome(Enum):
    """How one try ended."""

    SUCCESS = "SUCCESS"
    FAIL = "FAIL"
    SKIP = "SKIP"


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The limits of one step: None is no limit. Time in the caller's unit."""

    attempts: int | None = ATTEMPTS_DEFAULT
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class RetryOverride:
    """What a policy says of one step; None leaves the default, so it cannot mean "no limit"."""

    attempts: int | None = None
    timeout: int | None = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits frozen when the lease was queued."""

    default: RetryLimits = RetryLimits()
    by_step: Mapping[str, RetryOverride] = field(default_factory=dict)

    def limits(self, step: str) -> RetryLimits:
        """Return the limits of the step."""
        override = self.by_step.get(step, RetryOverride())
        return RetryLimits(
            self.default.attempts if override.attempts is None else override.attempts,
            self.default.timeout if override.timeout is None else override.timeout,
        )


@dataclass(frozen=True, slots=True)
class Try:
    """One try of one step at one instant."""

    step: str
    at: int
    outcome: TryOutcome
    error: str | None = None


def after_failure(earlier: Sequence[Try], failed: Try, limits: RetryLimits) -> Verdict:
    """Return what follows from a failure, given all earlier tries of the lease in order.

    The last allowed attempt is `limits.attempts` failures that are tried again; one more gives up.
    Time runs from the first failure since the step last succeeded. Giving up goes first.
    """
    mine = [entry for entry in earlier if entry.step == failed.step]
    successes = [i for i, entry in enumerate(mine) if entry.outcome is TryOutcome.SUCCESS]
    since = mine[successes[-1] + 1 :] if successes else mine
    failures = [entry for entry in since if entry.outcome is TryOutcome.FAIL]
    if limits.attempts is not None and len(failures) >= limits.attempts:
        return Verdict.GIVE_UP
    if failures and limits.timeout is not None and failed.at - failures[0].at > limits.timeout:
        return Verdict.EXPIRED
    return Verdict.NEED_RETRY


def overdue(queued_at: int, now: int, pending_timeout: int) -> bool:
    """Say whether a lease has waited too long since it was queued; a timeout of 0 is none."""
    return 0 < pending_timeout < now - queued_at


def backoff(attempt: int, base: int, longest: int) -> int:
    """Return how long to wait before the next attempt: doubled each time, at most `longest`.

    `attempt` counts from 1. The caller adds its own jitter; the core has no chance.
    """
    return min(longest, base << min(attempt - 1, 62))


@dataclass(frozen=True, slots=True)
class Record:
    """Equal tries in a row, as one entry of a history."""

    step: str
    skip: bool
    error: str | None
    target: object
    attempts: int
    first_at: int


def classify(policy: RetryPolicy, last: Record | None, entry: Try) -> Verdict:
    """Return the ancestor's verdict on a try, by the last record alone."""
    if entry.outcome is TryOutcome.SUCCESS:
        return Verdict.SUCCESS
    if entry.outcome is TryOutcome.SKIP:
        return Verdict.SKIPPED
    if last is None or last.step != entry.step or last.skip:
        return Verdict.NEED_RETRY
    limits = policy.limits(entry.step)
    if limits.attempts is not None and last.attempts >= limits.attempts:
        return Verdict.GIVE_UP
    if limits.timeout is not None and entry.at - last.first_at > limits.timeout:
        return Verdict.EXPIRED
    return Verdict.NEED_RETRY


def record(last: Record | None, entry: Try, target: object) -> tuple[Record, bool]:
    """Return the record after the try, and whether it was merged into the last one.

    Merged are tries of one step with one error and one target, skips with skips only.
    """
    skip = entry.outcome is TryOutcome.SKIP
    if last is not None and (last.step, last.error, last.target, last.skip) == (
        entry.step,
        entry.error,
        target,
        skip,
    ):
        return replace(last, attempts=last.attempts + 1), True
    return Record(entry.step, skip, entry.error, target, 1, entry.at), False
