"""Recurring bookings: a rule of RFC 5545 in a named zone becomes a fixed list of instants.

The rule's own arithmetic (FREQ, INTERVAL, BYDAY, …) is `dateutil`'s, on local times without a zone;
what clocks make of each is `readings`'s. Everything is expanded before anything is booked, so a
rule must come to an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from itertools import islice
from typing import Any, Final

from dateutil import rrule

from tenure_core.errors import Invalid, Violation
from tenure_core.recurrence.readings import Doubled, Missing, Note, read_clock
from tenure_core.timebase import Millis

OCCURRENCES_MAX: Final = 1_000
"""As many as are booked at once."""

_UNTIL: Final = re.compile(r"UNTIL=(\d{8})(?:T(\d{6})(Z?))?", re.IGNORECASE)
_ENDS: Final = re.compile(r"(?:^|;)(?:UNTIL|COUNT)=", re.IGNORECASE)
_PARTS: Final = re.compile(r"[A-Z-]+=[^;=]+(;[A-Z-]+=[^;=]+)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """When something recurs.

    `text` is the value of an RRULE, `first` the local time of the first occurrence (which RFC 5545
    wants to match the rule; one that does not is not added). `exceptions` leave out whole days or
    single local times.
    """

    text: str
    first: datetime
    zone: tzinfo
    missing: Missing = Missing.LATER
    doubled: Doubled = Doubled.FIRST
    exceptions: frozenset[date] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time: what the rule says, when that is (None: left out), and what is remarkable."""

    local: datetime
    at: Millis | None
    note: Note = Note.PLAIN


def expand(rule: Rule) -> list[Occurrence]:
    """Return all occurrences in order, those left out by clocks too.

    O(times that the rule visits), which for sparse rules may be many more than it yields. Raises
    Invalid RULE_INVALID, RULE_ENDLESS, TOO_MANY, EXCEPTION_NOT_FOUND or NO_OCCURRENCE, all that
    hold at once.
    """
    problems = _problems(rule)
    if problems:
        raise Invalid(problems)
    days, times = _split(rule.exceptions)
    found: list[Occurrence] = []
    excepted: set[date] = set()
    locals_ = list(islice(_rule_set(rule), OCCURRENCES_MAX + 1 + len(rule.exceptions)))
    for local in locals_:
        out = days & {local.date()} | times & {local}
        excepted |= out
        if not out:
            readings = read_clock(local, rule.zone, rule.missing, rule.doubled)
            found.extend(Occurrence(local, at, note) for at, note in readings)
    unknown = sorted(rule.exceptions - excepted, key=str)
    problems = [
        Violation("exceptions", "EXCEPTION_NOT_FOUND", f"the rule has no occurrence at {each}")
        for each in unknown
    ]
    if len(found) > OCCURRENCES_MAX:
        text = f"the rule has more than {OCCURRENCES_MAX} occurrences"
        problems = [Violation("rule", "TOO_MANY", text)]
    elif not any(each.at is not None for each in found):
        problems.append(Violation("rule", "NO_OCCURRENCE", "nothing is left of the rule"))
    if problems:
        raise Invalid(problems)
    return sorted(found, key=lambda each: (each.local, each.at or 0))


def _problems(rule: Rule) -> list[Violation]:
    found = []
    if not _PARTS.fullmatch(rule.text):
        text = "write a rule of RFC 5545, as in FREQ=WEEKLY;BYDAY=TU;COUNT=12"
        return [Violation("rule", "RULE_INVALID", text)]
    if not _ENDS.search(rule.text):
        text = "say how often or until when it recurs: COUNT=… or UNTIL=…"
        found.append(Violation("rule", "RULE_ENDLESS", text))
    try:
        _rule_set(rule)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        found.append(Violation("rule", "RULE_INVALID", f"this is no rule of RFC 5545: {error}"))
    return found


def _rule_set(rule: Rule) -> Iterable[datetime]:
    def local(found: re.Match[str]) -> str:
        """Write an end given in UTC as the zone's clocks show it then."""
        day, time, utc = found.groups()
        if not utc:
            return found[0]
        at = datetime.strptime(day + time, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        return f"UNTIL={at.astimezone(rule.zone):%Y%m%dT%H%M%S}"

    text = _UNTIL.sub(local, rule.text)
    # dateutil's stubs leave the result of the parser open.
    parsed: Any = rrule.rrulestr(text, dtstart=rule.first.replace(tzinfo=None))
    times: Iterable[datetime] = parsed
    return times


def _split(exceptions: Iterable[date]) -> tuple[frozenset[date], frozenset[datetime]]:
    times = frozenset(each for each in exceptions if isinstance(each, datetime))
    return frozenset(each for each in exceptions if each not in times), times
