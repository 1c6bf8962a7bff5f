"""The generated traces are reproducible and look as the published model says."""

from __future__ import annotations

import io
from statistics import mean, median

import pytest

from tenure_sim.lublin import LublinModel, generate, write_swf
from tenure_sim.swf import parse_swf

MODEL = LublinModel(jobs=4_000, processors=128, seed=7)


def text(model: LublinModel) -> str:
    out = io.StringIO()
    write_swf(model, out)
    return out.getvalue()


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    assert text(MODEL) == text(MODEL)
    assert text(MODEL) != text(LublinModel(jobs=4_000, processors=128, seed=8))


def test_what_is_written_reads_back_as_what_was_generated():
    made = generate(MODEL)
    read = parse_swf(made.name, text(MODEL).split("\n"), processors=128)
    assert (read.ids, read.arrivals, read.widths, read.requests, read.runs) == (
        made.ids,
        made.arrivals,
        made.widths,
        made.requests,
        made.runs,
    )


def test_widths_have_the_published_shares():
    widths = generate(MODEL).widths
    serial = sum(width == 1 for width in widths) / len(widths)
    powers = sum(width > 1 and width & (width - 1) == 0 for width in widths) / len(widths)
    assert serial == pytest.approx(0.244, abs=0.03)
    assert powers > 0.576
    assert max(widths) <= 128


def test_wider_jobs_run_longer_and_requests_cover_the_run():
    made = generate(MODEL)
    narrow = [run for run, width in zip(made.runs, made.widths, strict=True) if width <= 2]
    wide = [run for run, width in zip(made.runs, made.widths, strict=True) if width >= 32]
    assert median(wide) > median(narrow)
    assert all(run <= request for run, request in zip(made.runs, made.requests, strict=True))


def test_the_day_is_busier_than_the_night():
    hours = [arrival // 3_600_000 % 24 for arrival in generate(MODEL).arrivals]
    by_hour = [hours.count(hour) for hour in range(24)]
    assert mean(by_hour[9:18]) > 3 * mean(by_hour[1:7])


def test_the_load_is_what_was_asked_for():
    made = generate(LublinModel(jobs=4_000, processors=128, seed=7, load=0.95))
    work = sum(w * r for w, r in zip(made.widths, made.runs, strict=True))
    assert work / (128 * (made.arrivals[-1] - made.arrivals[0])) == pytest.approx(0.95, rel=0.001)
    assert made.arrivals == sorted(made.arrivals)
