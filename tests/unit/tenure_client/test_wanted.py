"""Keyword arguments become the lease that they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.client.spans import instant_ms, span_ms
from tenure.client.wanted import Wanted, lease_message
from tenure.type.v1 import work_pb2

NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)


def test_nothing_said_is_one_processor_for_ten_minutes_when_there_is_room():
    assert lease_message() == lpb.Lease(
        terms=lpb.Terms(best_effort=lpb.BestEffortTerms()),
        node_count=1,
        amounts={"cpu": 1_000},
        duration=Duration(seconds=600),
        work=work_pb2.Work(),
        on_failure=lpb.Lease.ON_FAILURE_FAIL,
        max_attempts=1,
        on_loss=work_pb2.ON_LOSS_STOP,
    )


def test_everything_said_is_in_the_message():
    message = lease_message(
        command=["sleep", "1"],
        nodes=3,
        cpu="1500m",
        memory="2Gi",
        gpu=0.5,
        resources={"licence": 2},
        duration="1h30m",
        start=NOON,
        pool="p",
        project="q",
        priority=-4,
        preemptible=True,
        environment={"A": "b"},
        image="i",
        on_failure="restart",
        attempts=5,
        keep_on_loss=True,
        after=["x"],
        after_any=["leases/y"],
        labels={"l": "m"},
        selector={"zone": "a"},
        spread=True,
        grace=2.5,
    )
    assert message == lpb.Lease(
        project="q",
        pool="p",
        terms=lpb.Terms(
            advance=lpb.AdvanceTerms(start_time=Timestamp(seconds=int(NOON.timestamp())))
        ),
        node_count=3,
        amounts={"cpu": 1_500, "memory": 2 * 1024**3, "gpu": 500, "licence": 2},
        duration=Duration(seconds=5_400),
        priority=-4,
        preemptible=True,
        work=work_pb2.Work(command=["sleep", "1"], environment={"A": "b"}, image="i"),
        on_failure=lpb.Lease.ON_FAILURE_RESTART,
        max_attempts=5,
        on_loss=work_pb2.ON_LOSS_KEEP,
        dependencies=[
            lpb.Dependency(lease="leases/x", condition=lpb.Dependency.CONDITION_SUCCEEDED),
            lpb.Dependency(lease="leases/y", condition=lpb.Dependency.CONDITION_ENDED),
        ],
        labels={"l": "m"},
        node_selector={"zone": "a"},
        spread=True,
        stop_grace_duration=Duration(seconds=2, nanos=500_000_000),
    )


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"immediate": True}, "immediate"),
        ({"deadline": NOON}, "deadline"),
        ({"deadline": NOON, "not_before": NOON - timedelta(hours=2)}, "deadline"),
        ({"start": timedelta(hours=1)}, "advance"),
        ({"immediate": False}, "best_effort"),
    ],
)
def test_when_it_is_wanted_chooses_the_terms(wanted, kind):
    terms = lease_message(**wanted).terms
    assert terms.WhichOneof("kind") == kind
    if "not_before" in wanted:
        assert terms.deadline.HasField("earliest_start_time")


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"start": NOON, "immediate": True}, "start and immediate exclude one another"),
        ({"not_before": NOON}, "not_before goes with deadline"),
        ({"start": datetime(2027, 1, 31)}, "has no zone"),
        ({"duration": "soon"}, "is no duration"),
        ({"cpu": "many"}, "is no quantity of cpu"),
        ({"memory": "4Xi"}, "memory"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(wanted, sentence):
    with pytest.raises(ValueError, match=sentence):
        lease_message(**wanted)


def test_a_misspelt_argument_is_refused():
    with pytest.raises(TypeError, match="a lease has no node_count"):
        lease_message(node_count=2)
    assert "nodes" in Wanted.__annotations__


@pytest.mark.parametrize(
    ("span", "millis"),
    [
        (timedelta(minutes=2), 120_000),
        (1.5, 1_500),
        (90, 90_000),
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("500ms", 500),
        ("1.5h", 5_400_000),
    ],
)
def test_durations_are_read_as_people_write_them(span, millis):
    assert span_ms(span) == millis


def test_instants_of_any_zone_are_the_same_instant():
    berlin = NOON.astimezone(timezone(timedelta(hours=1)))
    assert instant_ms(berlin) == instant_ms(NOON) == 1_801_396_800_000
