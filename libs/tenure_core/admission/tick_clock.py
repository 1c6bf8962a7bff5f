"""Spreads the ticks of several schedulers evenly over one interval.

Members of a shared clock fire one after another, the i-th of n at i/(n+1) of the interval, instead
of all at once. The ancestor needs this because every process runs passes; with one leader a pool
it serves periodic sweeps that any replica may do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TickClock:
    """What the members share: when the interval began, and who they are (seconds)."""

    sync: int | None = None
    members: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Tick:
    """What one member is told: it fires `delay` whole seconds after `sync`, once a period."""

    clock: TickClock
    sync: int
    delay: int


def tick(clock: TickClock, member: str, now: int, interval: int) -> Tick:
    """Move the clock on to `now`, add the member, and say when it fires.

    The period moves on by one interval; when that is not enough, because nobody asked for longer
    than two, it begins one interval after `now`. Delays are cut to whole seconds.
    """
    sync = clock.sync
    if sync is None:
        sync = now
    elif now >= sync + interval:
        sync += interval
        if now - sync > interval:
            sync = now + interval
    members = clock.members | {member}
    place = sorted(members).index(member) + 1
    return Tick(TickClock(sync, members), sync, place * interval // (len(members) + 1))


def without(clock: TickClock, gone: Sequence[str]) -> TickClock:
    """Return the clock without members that are gone, so that they keep no share of the interval.

    The ancestor never removes any.
    """
    return TickClock(clock.sync, clock.members - frozenset(gone))
