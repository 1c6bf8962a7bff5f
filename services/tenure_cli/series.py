"""Series of advance leases on the command line: one lease an occurrence, tied by labels.

Decides how the leases of a series are called and labelled, and which of them a person means by a
day or a time. An occurrence keeps its label when its lease is moved, as a RECURRENCE-ID does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from tenure.admission.v1 import admission_pb2 as apb
from tenure.admission.v1 import lease_pb2 as lpb
from tenure_core.recurrence.readings import Note, show_clock
from tenure_core.recurrence.rule import Occurrence
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import to_timestamp

SERIES: Final = "tenure/series"
OCCURRENCE: Final = "tenure/occurrence"
ZONE: Final = "tenure/zone"
NAME_LENGTH_MAX: Final = 48
"""A lease's id has 63 characters at most, and ends in the occurrence's time."""


@dataclass(frozen=True, slots=True)
class Booking:
    """One occurrence that is to be booked: its lease's id, its instant, what clocks show."""

    lease: str
    at: Millis
    shown: datetime
    note: Note


def zone_of(name: str) -> ZoneInfo:
    """Return a zone by its name, the user's own for "". Raises ValueError."""
    given = name or os.environ.get("TZ", "") or _machines_zone()
    try:
        return ZoneInfo(given)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{given!r} is no time zone; write one as in Europe/Berlin") from None


def _machines_zone() -> str:
    parts = Path("/etc/localtime").resolve().parts
    return "/".join(parts[parts.index("zoneinfo") + 1 :]) if "zoneinfo" in parts else "UTC"


def parse_local(text: str) -> date:
    """Return a day, or a local time without a zone, that a person wrote. Raises ValueError."""
    text = text.strip()
    try:
        return date.fromisoformat(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no day or time; write 2027-01-31 or 2027-01-31T09:00"
        ) from None
    if at.tzinfo is not None:
        raise ValueError(f"{text!r} has a zone; local times of the series have none")
    return at


def bookings(name: str, zone: tzinfo, occurrences: Iterable[Occurrence]) -> list[Booking]:
    """Return what is to be booked for a series; what clocks leave out is none of it."""
    found: list[Booking] = []
    taken: set[str] = set()
    for each in occurrences:
        if each.at is None:
            continue
        lease = f"{name}-{each.local:%Y%m%dt%H%M}"
        if each.local.second:
            lease += f"{each.local:%S}"
        while lease in taken:
            lease += "b"
        taken.add(lease)
        found.append(Booking(lease, each.at, show_clock(each.at, zone), each.note))
    return found


def requests(
    wanted: lpb.Lease, name: str, zone: tzinfo, booked: Sequence[Booking]
) -> list[apb.CreateLeaseRequest]:
    """Return a request for each booking, alike but for the time."""
    found = []
    for each in booked:
        lease = lpb.Lease()
        lease.CopyFrom(wanted)
        lease.terms.advance.start_time.CopyFrom(to_timestamp(each.at))
        lease.labels.update({SERIES: name, OCCURRENCE: each.shown.isoformat(), ZONE: str(zone)})
        found.append(apb.CreateLeaseRequest(lease=lease, lease_id=each.lease))
    return found


def occurrence_of(lease: lpb.Lease) -> datetime:
    """Return the time that a lease of a series was made for, as clocks showed it."""
    return datetime.fromisoformat(lease.labels[OCCURRENCE])


def chosen(leases: Iterable[lpb.Lease], only: date | None, from_: date | None) -> list[lpb.Lease]:
    """Return the leases of a series that are meant, in order: all, one day or time, or from it on.

    Raises ValueError when there is none.
    """
    ordered = sorted(leases, key=lambda lease: occurrence_of(lease).timestamp())
    found = [lease for lease in ordered if _is_meant(occurrence_of(lease), only, from_)]
    if not found:
        raise ValueError(f"the series has no occurrence {only or f'from {from_} on'}")
    return found


def _is_meant(at: datetime, only: date | None, from_: date | None) -> bool:
    local = at.replace(tzinfo=None)
    if isinstance(only, datetime):
        return local == only
    if only is not None:
        return local.date() == only
    if isinstance(from_, datetime):
        return local >= from_
    return from_ is None or local.date() >= from_
