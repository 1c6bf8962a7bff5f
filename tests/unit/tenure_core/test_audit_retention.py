"""What retention lets go: the oldest batches, by age or by size, a bounded number at a time."""

from __future__ import annotations

from tenure_core.audit.retention import Sealed, TrailLimits, to_drop

_OLDEST = [Sealed(number, 1_000 * number, 10, 500) for number in range(1, 6)]
_FOREVER = TrailLimits(1_000_000, 10**9)


def _numbers(limits: TrailLimits, kept: int = 3_000, entries_max: int = 100) -> list[int]:
    dropped = to_drop(_OLDEST, kept, limits, 10_000, entries_max)
    return [batch.number for batch in dropped]


def test_nothing_within_the_limits_goes() -> None:
    assert _numbers(_FOREVER) == []


def test_what_was_sealed_longer_ago_than_the_age_goes() -> None:
    assert _numbers(TrailLimits(7_000, 10**9)) == [1, 2]


def test_the_oldest_go_until_the_size_fits() -> None:
    assert _numbers(TrailLimits(1_000_000, 2_000)) == [1, 2]


def test_a_step_is_bounded_and_yet_takes_a_batch_that_is_larger() -> None:
    assert _numbers(TrailLimits(0, 0), entries_max=25) == [1, 2]
    assert _numbers(TrailLimits(0, 0), entries_max=5) == [1]
