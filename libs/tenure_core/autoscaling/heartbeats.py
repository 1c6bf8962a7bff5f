"""What heartbeats say: their order, the latest, since when, load and queue samples.

Identity is the incarnation of the agent, order is (incarnation, sequence); addresses and the
sender's clock decide nothing (P08, P30). Who is silent is decided in `silence`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tenure_core.autoscaling.machines import ApplicationState
from tenure_core.errors import Violation
from tenure_core.timebase import Millis

PPM = 1_000_000
"""Shares are parts per million, so that comparing with a limit is exact."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One report of an agent.

    `received_at_ms` is the receiver's monotonic clock. Shares are parts per million and may exceed
    one million for cpu. `mean_job_ms` is zero when no job has ended yet; `in_flight` is None when
    the agent does not know, which is not zero. Queue figures mean something only from a master.
    """

    incarnation: int
    sequence: int
    received_at_ms: Millis
    app_state: ApplicationState
    cpu_ppm: int = 0
    memory_ppm: int = 0
    disk_ppm: int = 0
    threads: int = 0
    mean_job_ms: Fraction = Fraction(0)
    in_flight: int | None = None
    queue_length: int = 0
    master_epoch: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Return what sorts heartbeats of one machine."""
        return (self.incarnation, self.sequence)


@dataclass(frozen=True, slots=True)
class HeartbeatHistory:
    """The newest heartbeats of one machine, oldest first.

    `reported_since_ms` is when the present run of equal application states began, None when no
    other state has been seen before it.
    """

    entries: tuple[Heartbeat, ...] = ()
    reported_since_ms: Millis | None = None

    @property
    def latest(self) -> Heartbeat | None:
        """Return the newest heartbeat, if any was heard."""
        return self.entries[-1] if self.entries else None


def merged(
    history: HeartbeatHistory, arrivals: Iterable[Heartbeat], *, history_max: int
) -> HeartbeatHistory:
    """Return the history with `arrivals` put in order, cut to the newest `history_max`.

    Repetitions are dropped, and so is everything of an older incarnation once a newer has spoken:
    late messages of the dead are not credited to the living. O(n log n).
    """
    known = {entry.order: entry for entry in history.entries}
    for arrival in arrivals:
        known.setdefault(arrival.order, arrival)
    newest = max((incarnation for incarnation, _ in known), default=0)
    entries = tuple(known[order] for order in sorted(known) if order[0] == newest)[-history_max:]
    return HeartbeatHistory(entries, _reported_since(history, entries))


def _reported_since(history: HeartbeatHistory, entries: tuple[Heartbeat, ...]) -> Millis | None:
    if not entries:
        return None
    present = entries[-1].app_state
    onset = len(entries)
    while onset and entries[onset - 1].app_state is present:
        onset -= 1
    if onset:
        return entries[onset].received_at_ms
    before = history.latest
    return history.reported_since_ms if before and before.app_state is present else None


def violations(heartbeat: Heartbeat) -> tuple[Violation, ...]:
    """Return everything wrong with a heartbeat; a listener drops it and goes on (P07)."""
    found = [
        Violation(field, "OUT_OF_RANGE", f"{field} is zero or more")
        for field in (
            "incarnation", "sequence", "cpu_ppm", "memory_ppm", "disk_ppm",
            "threads", "mean_job_ms", "queue_length", "master_epoch",
        )
        if getattr(heartbeat, field) < 0
    ]  # fmt: skip
    if heartbeat.in_flight is not None and heartbeat.in_flight < 0:
        found.append(Violation("in_flight", "OUT_OF_RANGE", "in_flight is zero or more"))
    return tuple(found)


def load_ppm(heartbeat: Heartbeat, *, limit_ppm: int) -> int:
    """Return the load of a worker: cpu, or the worst of three once memory or disk is short."""
    if heartbeat.memory_ppm > limit_ppm or heartbeat.disk_ppm > limit_ppm:
        return max(heartbeat.cpu_ppm, heartbeat.memory_ppm, heartbeat.disk_ppm)
    return heartbeat.cpu_ppm


def queue_samples(
    history: HeartbeatHistory, *, master_epoch: int, running_only: bool = True
) -> tuple[int, ...]:
    """Return the queue lengths that count: sent while RUNNING, in the present epoch (P29)."""
    return tuple(
        entry.queue_length
        for entry in history.entries
        if entry.master_epoch == master_epoch
        and (entry.app_state is ApplicationState.RUNNING or not running_only)
    )
