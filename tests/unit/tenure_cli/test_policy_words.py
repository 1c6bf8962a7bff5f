"""Policies are typed as words, and mean what they say."""

from __future__ import annotations

import click
import pytest

from tenure_cli.simulation.bar import Bar
from tenure_cli.simulation.policy_words import PolicyWords, parse_policy, words_of
from tenure_core.policies.admission import NoAdvance
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Migration, Overheads, Policies
from tenure_core.policies.ordering import parse_ordering
from tenure_core.policies.placement import HostSelection
from tenure_core.policies.preemption import NoPreemption
from tenure_core.policies.pricing import Constant

BASE = PolicyWords()


def test_a_policy_with_everything():
    text = (
        "intermediate:3+ordering=shortest+placement=spread+preemption=off+depth=9"
        "+suspend=2s+resume=1m+threshold=1h"
    )
    assert parse_policy(text, BASE).bundle() == Policies(
        backfilling=Backfilling.intermediate(3),
        ordering=parse_ordering("shortest"),
        host_selection=HostSelection.WORST_FIT,
        preemption=NoPreemption(),
        overheads=Overheads(2_000, 60_000),
        depth_max=9,
        threshold_ms=3_600_000,
    )


def test_what_is_left_open_is_as_in_the_base():
    base = parse_policy("conservative+depth=4", BASE)
    words = parse_policy("ordering=shortest", base)
    assert (words.backfilling, words.ordering, words.depth) == ("conservative", "shortest", 4)
    assert words.name == "ordering=shortest"


def test_single_options_go_before_the_policy():
    words = words_of("easy+depth=4", "off", None, None, None, "7")
    assert (words.backfilling, words.depth, words.name) == ("off", 7, "easy+depth=4")


@pytest.mark.parametrize(
    "text",
    ["sometimes", "intermediate:", "easy+depth=0", "easy+depth=x", "easy+x", "easy+resume=a"],
)
def test_words_that_mean_nothing_are_refused(text: str):
    with pytest.raises(click.UsageError):
        parse_policy(text, BASE)


def test_the_bar_tells_share_rate_and_time_left():
    bar = Bar("easy", 1_000)
    with bar as progress:
        progress.done = 250
        line = bar.line(0.5)
    assert " 25%  250/1,000 leases  500/s  2 s left" in line
    assert line.count("█") == 7


def test_what_is_booked_around_runs_is_typed_too():
    text = "easy+shutdown=3s+partial=on+migration=100+admission=no-advance+pricing=constant:2"
    made = parse_policy(text, BASE).bundle()
    assert made == Policies(
        overheads=Overheads(0, 0, 3_000, Migration.YES, 100 * 2**20 // 8),
        partial_starts=True,
        admission=NoAdvance(),
        pricing=Constant(2.0),
        ordering=made.ordering,
    )
    moved = parse_policy("easy+migration=notransfer", BASE).bundle()
    assert moved.overheads == Overheads(migration=Migration.YES_NOTRANSFER)


@pytest.mark.parametrize(
    "text", ["easy+partial=yes", "easy+migration=fast", "easy+migration=0", "easy+pricing=dear"]
)
def test_words_that_mean_nothing_around_runs_are_refused(text: str):
    with pytest.raises(click.UsageError):
        parse_policy(text, BASE)
