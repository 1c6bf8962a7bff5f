"""The settings of an elastic group, checked before anything acts on them.

All lengths are milliseconds. A limit is passed only when it is exceeded: equal is still in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tenure_core.errors import Invalid, Violation
from tenure_core.timebase import MINUTE_MS, SECOND_MS, Millis


class WhileStarting(StrEnum):
    """What a start in flight means for the next scale decision.

    COUNT decides at once and counts what is on its way. WAIT decides nothing while a start is in
    time and counts nothing else, as the ancestor did; a start that is late never blocks.
    """

    COUNT = "COUNT"
    WAIT = "WAIT"


class ServiceTime(StrEnum):
    """How the mean job time of a group is formed.

    WEIGHTED by work done, so that queue / threads * mean is queue / rate. PLAIN is the ancestor's
    mean of the workers' means, which one slow small worker or one newcomer distorts.
    """

    WEIGHTED = "WEIGHTED"
    PLAIN = "PLAIN"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each state that a command leads to may last."""

    startup_ms: Millis = 300 * SECOND_MS
    transition_ms: Millis = 60 * SECOND_MS
    shutdown_ms: Millis = 120 * SECOND_MS
    suspend_ms: Millis = 120 * SECOND_MS
    delete_ms: Millis = 120 * SECOND_MS
    create_seen_ms: Millis = 60 * SECOND_MS
    attempts_max: int = 2
    force_removal: bool = True


@dataclass(frozen=True, slots=True)
class SilencePolicy:
    """When a machine that does not report is given up, and when the observer is to blame.

    Giving up takes more than `missed_intervals` intervals and a second source, or
    `give_up_ms` of silence whatever the second source says. Destructive commands stop when at
    least `halt_min` machines and more than `halt_share_ppm` of those expected are silent or bad;
    after `halt_max_ms` of that, one is allowed a tick, so that a true loss is cleared in the end.
    """

    missed_intervals: int = 3
    give_up_ms: Millis = 300 * SECOND_MS
    halt_share_ppm: int = 450_000
    halt_min: int = 3
    halt_max_ms: Millis = 15 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class DrainBand:
    """The band in which the queue's drain time is left alone, and how it is measured.

    `running_samples_only` leaves out what a master reported while it did not run; the ancestor
    counted that as an empty queue.
    """

    lower_ms: Millis = 10 * SECOND_MS
    upper_ms: Millis = 30 * SECOND_MS
    samples: int = 3
    load_limit_ppm: int = 800_000
    running_samples_only: bool = True
    service_time: ServiceTime = ServiceTime.WEIGHTED
    while_starting: WhileStarting = WhileStarting.COUNT


@dataclass(frozen=True, slots=True)
class Damping:
    """What keeps a group from swinging.

    Scaling in follows the largest recommendation of `in_window_ms`, scaling out the smallest of
    `out_window_ms`; after any change scaling in rests for `in_cooldown_ms`, and after scaling out
    the next scaling out for `out_cooldown_ms`. Steps of None are not limited. `anti_flap` checks
    that those who stay suffice, and cancels drains before anything is bought; the ancestor did
    neither.
    """

    in_window_ms: Millis = 5 * MINUTE_MS
    out_window_ms: Millis = 0
    in_cooldown_ms: Millis = 5 * MINUTE_MS
    out_cooldown_ms: Millis = 0
    in_step_max: int | None = None
    out_step_max: int | None = None
    anti_flap: bool = True


@dataclass(frozen=True, slots=True)
class ElasticGroupConfig:
    """Everything that an elastic group is told."""

    group: str = "group"
    min_workers: int = 1
    max_workers: int = 8
    decision_interval_ms: Millis = 10 * SECOND_MS
    heartbeat_interval_ms: Millis = 2 * SECOND_MS
    history_max: int = 20
    deadlines: Deadlines = field(default_factory=Deadlines)
    silence: SilencePolicy = field(default_factory=SilencePolicy)
    band: DrainBand = field(default_factory=DrainBand)
    damping: Damping = field(default_factory=Damping)

    def checked(self) -> ElasticGroupConfig:
        """Return the settings themselves. Raises Invalid with every violation found."""
        found = tuple(_violations(self))
        if found:
            raise Invalid(found, "INVALID_GROUP_CONFIG")
        return self


def _violations(config: ElasticGroupConfig) -> list[Violation]:
    band, damping, silence = config.band, config.damping, config.silence
    deadlines = config.deadlines
    rules = [
        (config.max_workers >= 1, "max_workers", "at least one worker is allowed"),
        (config.min_workers >= 1, "min_workers", "at least one worker is kept"),
        (config.min_workers <= config.max_workers, "min_workers", "at most max_workers"),
        (config.decision_interval_ms > 0, "decision_interval_ms", "longer than zero"),
        (0 < config.heartbeat_interval_ms < config.decision_interval_ms,
         "heartbeat_interval_ms", "shorter than the decision interval"),
        (band.lower_ms >= 0, "band.lower_ms", "zero or more"),
        (band.upper_ms > 0, "band.upper_ms", "longer than zero"),
        (band.lower_ms <= band.upper_ms, "band.lower_ms", "at most band.upper_ms"),
        (band.samples >= 1, "band.samples", "at least one sample"),
        (config.history_max >= band.samples, "history_max", "at least band.samples"),
        (0 < band.load_limit_ppm <= 1_000_000, "band.load_limit_ppm", "in 1..1000000"),
        (silence.missed_intervals >= 1, "silence.missed_intervals", "at least one"),
        (0 < silence.halt_share_ppm <= 1_000_000, "silence.halt_share_ppm", "in 1..1000000"),
        (silence.halt_min >= 1, "silence.halt_min", "at least one"),
        (deadlines.attempts_max >= 1, "deadlines.attempts_max", "at least one"),
    ]  # fmt: skip
    rules += [
        (getattr(deadlines, name) > 0, f"deadlines.{name}", "longer than zero")
        for name in ("startup_ms", "transition_ms", "shutdown_ms", "suspend_ms", "delete_ms")
    ]
    rules += [
        (getattr(damping, name) >= 0, f"damping.{name}", "zero or more")
        for name in ("in_window_ms", "out_window_ms", "in_cooldown_ms", "out_cooldown_ms")
    ]
    rules += [
        (step is None or step >= 1, f"damping.{name}", "at least one, or no limit")
        for name, step in (
            ("in_step_max", damping.in_step_max),
            ("out_step_max", damping.out_step_max),
        )
    ]
    return [
        Violation(field_name, "OUT_OF_RANGE", description)
        for holds, field_name, description in rules
        if not holds
    ]
