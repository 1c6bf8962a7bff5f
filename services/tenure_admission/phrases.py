"""States, reasons, instants and lengths in plain words."""

from __future__ import annotations

from typing import Final

from tenure_admission.budgets import hours
from tenure_admission.charges import Excess
from tenure_admission.records import ChangeVerdict, PendingChange
from tenure_core.admission.remedies import Remedy, Suggestion
from tenure_core.leases.lease import Lease
from tenure_core.leases.states import LeaseState
from tenure_core.resources import format_quantity
from tenure_core.timebase import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Millis, in_words

S = LeaseState

_STATES: Final = {
    S.PENDING: "It was created; the leader of pool {pool} has not decided yet.",
    S.QUEUED: "It waits in the queue of pool {pool}; nothing is charged.",
    S.SCHEDULED: "It is booked and charged; its time has not come.",
    S.PREPARING: "Its nodes are being prepared.",
    S.STARTING: "Its agents were told to start it; not all have confirmed.",
    S.ACTIVE: "It runs on all its nodes.",
    S.SUSPENDING: "It is being suspended to make room for a lease that may not wait.",
    S.SUSPENDED: "It is suspended with its progress kept, and waits to be resumed.",
    S.RESUMING: "It is being resumed.",
    S.MIGRATING: "Its suspended state moves to other nodes.",
    S.STOPPING: "Its agents were told to stop it.",
    S.CANCELLING: "Its owner gave it up; it is charged until its capacity is released.",
    S.DONE: "It ended as it should.",
    S.FAILED: "It failed; no attempt is left.",
    S.CANCELLED: "Its owner gave it up.",
    S.REJECTED: "It was refused before anything was booked.",
}

REMEDIES: Final = {
    "WAITING_FOR_CAPACITY": "Fewer slots, smaller amounts or a shorter duration may start sooner.",
    "QUOTA_EXCEEDED": "It starts once other leases of its owner or project end.",
    "WAITING_FOR_QUOTA": "It starts once other leases of the owner or project end.",
    "POOL_CORDONED": "Ask an operator when the pool opens, or use another pool.",
}


def words_of(reason: str) -> str:
    """Return a reason code as a sentence: `Waiting for capacity.` for `WAITING_FOR_CAPACITY`."""
    return reason.replace("_", " ").capitalize() + "."


def length(span_ms: Millis) -> str:
    """Return a length in its two largest units: `1 h 5 min`, `40 s`."""
    parts = []
    rest = max(0, span_ms)
    for unit_ms, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s")):
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "less than a second"


def times(count: int) -> str:
    """Return `once`, `twice` or `3 times`."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def of_state(lease: Lease, now: Millis) -> str:
    """Return where a lease is, since when, and why if its leader said so."""
    text = _STATES[lease.state].format(pool=lease.spec.pool)
    why = lease.message or (words_of(lease.reason) if lease.reason else "")
    if why in (text, words_of("CANCELLED_BY_OWNER")):
        why = ""
    if lease.state is S.SCHEDULED and lease.predicted_start is not None:
        text = f"It is booked and charged; it starts at {in_words(lease.predicted_start)}."
    if lease.state is S.SCHEDULED and lease.hold_expires is not None:
        text += f" It is given up at {in_words(lease.hold_expires)} unless it is confirmed."
    if lease.state is S.ACTIVE and lease.started is not None:
        text = f"It has run on all its nodes for {length(now - lease.started)}."
    if lease.ended is not None:
        text = f"{text.removesuffix('.')} at {in_words(lease.ended)}."
    code = f" Its exit code was {lease.exit_code}." if lease.exit_code is not None else ""
    return f"{text} {why}".strip() + code


def of_remedy(help_: Suggestion, lease: Lease, now: Millis) -> str:
    """Return what a change would do, as `With 2 of 4 slots it would start now` says it."""
    spec, terms = lease.spec, help_.terms
    fewer = f"With {terms.node_count} of {spec.node_count} slots"
    shorter = f"{length(terms.duration_ms)} instead of {length(spec.duration_ms)}"
    change = {
        Remedy.FEWER_NODES: fewer,
        Remedy.SHORTER: f"With {shorter}",
        Remedy.FEWER_AND_SHORTER: f"{fewer} and {shorter}",
        Remedy.OTHER_POOL: f"In pool {help_.elsewhere}",
        Remedy.OTHER_PROJECT: f"Charged to project {help_.elsewhere}",
    }[help_.remedy]
    when = "now" if help_.start <= now + SECOND_MS else f"at {in_words(help_.start)}"
    return f"{change} it would start {when}."


def of_excess(excess: Excess) -> str:
    """Return which quota a charge would exceed, what is used of it and what was asked for."""
    limit = excess.limit
    if limit.period:
        return _of_budget(excess)
    most, used, asked = (
        format_quantity(limit.resource, amount)
        for amount in (limit.amount, excess.used, excess.asked)
    )
    return (
        f"Quota {limit.quota} allows {limit.dimension} {limit.name} {limit.resource}={most} at a "
        f"time; {used} is charged at {in_words(excess.at)} and this lease asks for {asked}."
    )


def _of_budget(excess: Excess) -> str:
    limit = excess.limit
    most, used, asked = (
        format_quantity(limit.resource, amount)
        for amount in (limit.amount, hours(excess.used), hours(excess.asked))
    )
    return (
        f"Quota {limit.quota} allows {limit.dimension} {limit.name} {most} {limit.resource}-hours "
        f"a {limit.period}; {used} are charged in the {limit.period} from {in_words(excess.at)} "
        f"and this lease asks for {asked} in it."
    )


def of_change(change: PendingChange) -> str:
    """Return what became of a change that the owner asked for."""
    match change.verdict:
        case ChangeVerdict.UNDECIDED:
            return (
                f"A change asked for at {in_words(change.requested)} awaits its leader's decision."
            )
        case ChangeVerdict.GRANTED:
            return "The last change asked for was granted."
        case ChangeVerdict.REFUSED:
            why = change.message or words_of(change.reason or "REFUSED")
            offers = len(change.counter_offers)
            more = f" There are {offers} counter-offers." if offers else ""
            return f"The last change asked for was refused: {why}{more}"
