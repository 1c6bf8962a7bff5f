from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure_core.admission.usage import SLICE_MS, by_day, meter
from tenure_core.timebase import DAY_MS

_instants = st.integers(0, 2 * DAY_MS)


@settings(deadline=None)
@given(_instants, st.lists(_instants, max_size=8), _instants, st.integers(0, 1_000))
def test_however_often_work_is_metered_it_is_charged_exactly_once(
    started: int, looks: list[int], length: int, cpu: int
) -> None:
    ended = started + length
    slices, observed = [], None
    for now in looks:
        found = meter({"cpu": cpu}, started, min(now, ended), observed_until=observed)
        assert found.observed_until >= (observed or started)
        observed = found.observed_until
        slices += found.slices
    slices += meter({"cpu": cpu}, started, ended, ended=ended, observed_until=observed).slices

    assert sum(piece.usage["cpu"] for piece in slices) == cpu * length
    assert sum(usage["cpu"] for usage in by_day(slices).values()) == cpu * length
    edge = started
    for piece in slices:
        assert piece.span.start == edge
        assert piece.span.duration_ms <= SLICE_MS
        assert piece.span.start // SLICE_MS == (piece.span.end - 1) // SLICE_MS
        edge = piece.span.end
    assert edge == ended
