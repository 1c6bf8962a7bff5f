"""What a simulated fleet is like: its policy, and how its machines boot, fail and cost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import log
from typing import Final

from tenure_core.timebase import HOUR_MS, MINUTE_MS, SECOND_MS, Millis

_P95: Final = 1.6448536269514722
"""How many standard deviations the 95th percentile of a normal distribution lies above its mean."""


SEEN_EVERY_MS: Final[Millis] = 5 * SECOND_MS
"""A machine is seen to be up at whole multiples of this: what comes together is one event."""


class FleetPolicy(StrEnum):
    """By what a fleet is sized."""

    STATIC = "static"
    """All machines, always."""
    QUEUE = "queue-only"
    """By what waits now; a booking is seen once its start has come."""
    BOOKINGS = "reservation-aware"
    """By what waits and by what is booked, as the live autoscaler."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The settings of one run.

    Boots are drawn from a log-normal distribution with this median and 95th percentile; of a
    million, `failed_ppm` never come up, and nobody says so. `idle_ms` is how long a machine may
    idle, `price_micros` what one costs an hour, from its launch to its end. With `keeps_booked` a
    machine stays as long as anything is booked on its node; else it goes when that is far enough
    for another to come in time.
    """

    policy: FleetPolicy = FleetPolicy.BOOKINGS
    boot_p95_ms: Millis = 120 * SECOND_MS
    boot_median_ms: Millis = 75 * SECOND_MS
    failed_ppm: int = 20_000
    idle_ms: Millis = 10 * MINUTE_MS
    price_micros: int = 1_000_000
    launches_per_minute: int = 60
    period_ms: Millis = 30 * SECOND_MS
    horizon_ms: Millis = 6 * HOUR_MS
    keeps_booked: bool = False

    def boots(self, seed: int) -> Iterator[Millis | None]:
        """Yield how long each boot takes, None for one that fails; repeats for a seed."""
        chance = random.Random(f"boots/{seed}")  # noqa: S311 - repeats, protects nothing
        mu = log(self.boot_median_ms)
        sigma = (log(self.boot_p95_ms) - mu) / _P95
        while True:
            took = round(chance.lognormvariate(mu, sigma))
            yield None if chance.randrange(1_000_000) < self.failed_ppm else took
