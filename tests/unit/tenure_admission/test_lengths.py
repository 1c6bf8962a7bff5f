"""Lengths of time that are out of range: the sentence says the range in words people know."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from tenure_admission.lease_validation import DURATION_MS_MAX, STOP_GRACE_MS_MAX
from tenure_admission.part_validation import length
from tenure_core.timebase import Millis


@pytest.mark.parametrize(
    ("given", "least", "most", "said"),
    [
        (Duration(seconds=0), 1_000, DURATION_MS_MAX, "is 1 s to 366 days"),
        (Duration(seconds=601), 0, STOP_GRACE_MS_MAX, "is 0 s to 600 s"),
    ],
)
def test_a_range_is_said_in_days_when_it_is_long(
    given: Duration, least: Millis, most: Millis, said: str
) -> None:
    assert [each.description for each in length("x", given, least, most)] == [said]
