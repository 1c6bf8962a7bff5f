"""Suite retry-classification: tries of steps in a row, and what follows from each."""

from __future__ import annotations

from typing import Final

from tests.conformance.backendai_case import Case, Json, Operation, known
from tests.conformance.backendai_states import OUTCOMES, STATUSES, step_of

from tenure_core.admission.lifecycle import STEPS
from tenure_core.admission.retries import (
    ATTEMPTS_DEFAULT,
    Record,
    RetryLimits,
    RetryOverride,
    RetryPolicy,
    Try,
    TryOutcome,
    Verdict,
    after_failure,
    classify,
    overdue,
    record,
)

_OUTCOMES: Final = {
    "fail": TryOutcome.FAIL,
    "skip": TryOutcome.SKIP,
    "success": TryOutcome.SUCCESS,
}
_VERDICTS: Final = {
    Verdict.SUCCESS: "success",
    Verdict.SKIPPED: "skipped",
    Verdict.NEED_RETRY: "need_retry",
    Verdict.EXPIRED: "expired",
    Verdict.GIVE_UP: "give_up",
}


def _policy(policy: Json) -> RetryPolicy:
    known(policy, {"default", "by_handler"})
    default = known(policy.get("default", {}), {"max_retry_count", "timeout"})
    return RetryPolicy(
        RetryLimits(default.get("max_retry_count", ATTEMPTS_DEFAULT), default.get("timeout")),
        {
            handler: RetryOverride(
                known(override, {"max_retry_count", "timeout"}).get("max_retry_count"),
                override.get("timeout"),
            )
            for handler, override in policy.get("by_handler", {}).items()
        },
    )


def _tries(case: Json) -> list[Try]:
    known(case, {"policy", "steps"})
    return [
        Try(step["phase"], step["at"], _OUTCOMES[step["outcome"]], step.get("error"))
        for step in (known(s, {"at", "phase", "outcome", "error"}) for s in case["steps"])
    ]


def _target(handler: str, verdict: Verdict) -> str | None:
    name = _VERDICTS[verdict]
    if name not in OUTCOMES:
        return None
    change = STEPS[step_of(handler)].written(OUTCOMES[name])
    return None if change is None or change.lease is None else STATUSES[change.lease]


def _retry_trace(case: Json) -> Json:
    policy = _policy(case["policy"])
    last: Record | None = None
    steps, records = [], 0
    for entry in _tries(case):
        verdict = classify(policy, last, entry)
        target = _target(entry.step, verdict)
        last, merged = record(last, entry, target)
        records += not merged
        steps.append(
            {
                "classified": _VERDICTS[verdict],
                "moves_to": target,
                "record_merged": merged,
                "attempts": last.attempts,
                "first_at": last.first_at,
            }
        )
    return {"steps": steps, "records": records}


def _retry_trace_better(case: Case) -> None:
    """Every real failure of a step counts until the step succeeds; a long wait ends by itself."""
    policy, tries = _policy(case.input["policy"]), _tries(case.input)
    failures: dict[str, int] = {}
    for place, entry in enumerate(tries):
        if entry.outcome is TryOutcome.SUCCESS:
            failures[entry.step] = 0
        if entry.outcome is not TryOutcome.FAIL:
            continue
        if step_of(entry.step) == "end overdue waits":
            # The sweep sees only what is past its pending timeout: the first look ends it.
            assert overdue(queued_at=entry.at - 2, now=entry.at, pending_timeout=1)
            continue
        limits = policy.limits(entry.step)
        before = failures.get(entry.step, 0)
        spent = limits.attempts is not None and before >= limits.attempts
        verdict = after_failure(tries[:place], entry, limits)
        assert (verdict is Verdict.GIVE_UP) == spent
        failures[entry.step] = before + 1


OPERATIONS: Final = {"retry_trace": Operation(_retry_trace, _retry_trace_better)}
