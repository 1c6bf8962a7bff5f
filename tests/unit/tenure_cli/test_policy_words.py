"""Policies are typed as words, and mean what they say."""

from __future__ import annotations

import click
import pytest

from tenure_cli.simulation.bar import Bar
from tenure_cli.simulation.policy_words import PolicyWords, parse_policy, words_of
from tenure_core.policies.backfilling import Backfilling
from tenure_core.policies.bundle import Overheads, Policies
from tenure_core.policies.ordering import parse_ordering
from tenure_core.policies.placement import HostSelection
from tenure_core.policies.preemption import NoPreemption

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
