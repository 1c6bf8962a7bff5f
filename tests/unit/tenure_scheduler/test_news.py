"""What a leader tells of what it expects: at once, or with the positions once a second."""

from __future__ import annotations

import pytest

from tenure_scheduler.entries import Prediction
from tenure_scheduler.planning import is_news

TOLD = Prediction("l1", None, 7, "WAITING_FOR_CAPACITY", "others hold it")


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize(
    "now",
    [
        Prediction("l1", 5, 7, TOLD.reason, TOLD.message),
        Prediction("l1", None, 7, "POOL_CORDONED", TOLD.message),
        Prediction("l1", None, 7, TOLD.reason, "another text"),
    ],
)
def test_what_says_more_than_a_position_is_told_at_once(now: Prediction, moves: bool) -> None:
    assert is_news(now, TOLD, moves=moves)
    assert is_news(now, None, moves=moves)


def test_a_position_alone_waits_until_positions_are_told() -> None:
    """Each start moves all that wait: told at once, a long queue would be written for each."""
    moved_up = Prediction("l1", None, 6, TOLD.reason, TOLD.message)

    assert not is_news(moved_up, TOLD, moves=False)
    assert is_news(moved_up, TOLD, moves=True)
    assert not is_news(TOLD, TOLD, moves=True)
