"""What differs between the machines that are wanted and those that the provider lists.

Both directions: machines without a record (orphans) and records without a machine (leaks). Only
what carries the owner's mark is ever named for removal (P01); a first difference is only noted,
because listings lag (P17, P19). Acting on the result is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tenure_core.timebase import MINUTE_MS, Millis


class Difference(StrEnum):
    """One kind of difference, and with it what should be done."""

    ADOPT = "ADOPT"
    ORPHAN = "ORPHAN"
    DUPLICATE = "DUPLICATE"
    LOST = "LOST"
    UNANSWERED = "UNANSWERED"
    GONE = "GONE"
    LINGERING = "LINGERING"
    FOREIGN = "FOREIGN"


@dataclass(frozen=True, slots=True)
class WantedMachine:
    """A machine as stored before the provider was asked; `machine_id` is empty until answered.

    `deleted_at_ms` makes it a tombstone.
    """

    token: str
    asked_at_ms: Millis
    machine_id: str = ""
    deleted_at_ms: Millis | None = None


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """A machine in a complete listing, with the owner and token that its tags name."""

    machine_id: str
    owner: str = ""
    token: str = ""
    first_seen_ms: Millis = 0


@dataclass(frozen=True, slots=True)
class Grace:
    """How long a difference may be the listing's lag."""

    orphan_ms: Millis = 10 * MINUTE_MS
    lost_ms: Millis = 2 * MINUTE_MS
    unanswered_ms: Millis = MINUTE_MS
    lingering_ms: Millis = 2 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference: the machine, the token, and whether its grace has passed."""

    difference: Difference
    machine_id: str = ""
    token: str = ""
    overdue: bool = False


def reconcile(
    wanted: Iterable[WantedMachine],
    seen: Iterable[SeenMachine],
    *,
    owner: str,
    now_ms: Millis,
    grace: Grace,
) -> list[Finding]:
    """Return the differences between what is wanted and a complete listing.

    Several machines of one token are one wanted machine and DUPLICATEs: the one recorded, or else
    the lowest id, stays. Sorted by difference, machine and token. O(n log n).
    """
    ours: dict[str, list[SeenMachine]] = {}
    findings = []
    for machine in sorted(seen, key=lambda machine: machine.machine_id):
        if machine.owner == owner:
            ours.setdefault(machine.token, []).append(machine)
        else:
            findings.append(Finding(Difference.FOREIGN, machine.machine_id, machine.token))
    by_token = {machine.token: machine for machine in wanted}
    for token, record in by_token.items():
        findings += _of_record(record, ours.get(token, []), now_ms=now_ms, grace=grace)
    findings += _orphans(ours, by_token, now_ms=now_ms, grace=grace)
    return sorted(findings, key=lambda f: (f.difference, f.machine_id, f.token))


def _of_record(
    record: WantedMachine, machines: list[SeenMachine], *, now_ms: Millis, grace: Grace
) -> list[Finding]:
    if record.deleted_at_ms is not None:
        late = now_ms - record.deleted_at_ms > grace.lingering_ms
        if not machines:
            return [Finding(Difference.GONE, record.machine_id, record.token)]
        return [
            Finding(Difference.LINGERING, machine.machine_id, record.token, late)
            for machine in machines
        ]
    if not machines:
        age = now_ms - record.asked_at_ms
        if record.machine_id:
            return [Finding(Difference.LOST, record.machine_id, record.token, age > grace.lost_ms)]
        return [Finding(Difference.UNANSWERED, "", record.token, age > grace.unanswered_ms)]
    kept = next((m for m in machines if m.machine_id == record.machine_id), machines[0])
    findings = [
        Finding(Difference.DUPLICATE, machine.machine_id, record.token, overdue=True)
        for machine in machines
        if machine is not kept
    ]
    if not record.machine_id:
        findings.append(Finding(Difference.ADOPT, kept.machine_id, record.token))
    return findings


def _orphans(
    ours: Mapping[str, list[SeenMachine]],
    by_token: Mapping[str, WantedMachine],
    *,
    now_ms: Millis,
    grace: Grace,
) -> list[Finding]:
    return [
        Finding(
            Difference.ORPHAN,
            machine.machine_id,
            token,
            now_ms - machine.first_seen_ms > grace.orphan_ms,
        )
        for token, machines in ours.items()
        if token not in by_token
        for machine in machines
    ]
