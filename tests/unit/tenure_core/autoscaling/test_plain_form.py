"""State and inputs as plain data: what is stored is what is read, and what-ifs repeat exactly."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.unit.tenure_core.autoscaling.fleet_builder import (
    CONFIG,
    SMALL,
    WIDE,
    fleets,
    lease,
)
from tests.unit.tenure_core.autoscaling.group_builder import NOW, group, live

from tenure_core.autoscaling.elastic_group import GroupInputs, decide
from tenure_core.autoscaling.fleet import FleetInputs, FleetState, decide_fleet
from tenure_core.autoscaling.group_config import ElasticGroupConfig
from tenure_core.autoscaling.group_records import GroupState
from tenure_core.autoscaling.machine_types import MachineType
from tenure_core.autoscaling.machines import Listing, MachineRecord
from tenure_core.autoscaling.plain_form import from_plain, to_plain
from tenure_core.errors import Invalid


def through_json(value: object, kind: type) -> object:
    """Write and read a value as a store would."""
    return from_plain(kind, json.loads(json.dumps(to_plain(value))))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 200), st.integers(1, 8))
def test_p22_a_restart_after_any_tick_goes_on_as_if_nothing_had_happened(
    awake: int, asleep: int, queue: int, ticks: int
) -> None:
    """The state read back is the state stored, after any number of ticks, so decisions go on."""
    going = live(group(awake=awake, asleep=asleep, queue=(queue,) * 3))
    going.queue_length = queue
    for _ in range(ticks):
        state = going.tick().decision.state
        assert through_json(state, GroupState) == state


def test_p27_a_recorded_decision_can_be_made_again() -> None:
    """Inputs, state and settings are all that a decision depends on."""
    world = group(awake=2, asleep=1, queue=(30, 30, 30))
    inputs = GroupInputs(NOW * 1000, Listing(tuple(world.machines.values())), world.histories)
    first = decide(world.state, inputs, world.config)
    again = decide(
        through_json(world.state, GroupState),  # type: ignore[arg-type]
        through_json(inputs, GroupInputs),  # type: ignore[arg-type]
        through_json(world.config, ElasticGroupConfig),  # type: ignore[arg-type]
    )

    assert again == first
    assert json.dumps(to_plain(first.explanation))


@settings(max_examples=40, deadline=None)
@given(fleets)
def test_p27_a_recorded_fleet_decision_can_be_made_again(nodes: list) -> None:  # type: ignore[type-arg]
    """The same for a pool."""
    inputs = FleetInputs(0, tuple(nodes), (), (lease("a", nodes=2),))
    types = (SMALL, MachineType("big", SMALL.capacity))
    first = decide_fleet(WIDE, inputs, types, CONFIG)
    again = decide_fleet(
        through_json(WIDE, FleetState),  # type: ignore[arg-type]
        through_json(inputs, FleetInputs),  # type: ignore[arg-type]
        [through_json(kind, MachineType) for kind in types],  # type: ignore[misc]
        CONFIG,
    )

    assert again == first
    assert through_json(first.state, FleetState) == first.state


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ({"machine_id": 7}, "MachineRecord.machine_id"),
        ({"machine_id": "w", "role": "KING"}, "MachineRecord.role"),
        ({"machine_id": "w", "role": "WORKER", "last": None}, "MachineRecord.since_ms"),
        (
            {"machine_id": "w", "role": "WORKER", "last": None, "since_ms": True},
            "MachineRecord.since_ms",
        ),
        ({"colour": "red"}, "MachineRecord.colour"),
        ([], "MachineRecord"),
    ],
)
def test_what_does_not_read_is_named(plain: object, path: str) -> None:
    """A damaged row says where it is damaged, before anything acts on it."""
    with pytest.raises(Invalid) as caught:
        from_plain(MachineRecord, plain)

    assert (caught.value.reason, caught.value.violations[0].field) == ("UNREADABLE_STATE", path)


def test_an_absent_field_takes_its_default() -> None:
    """Rows written by an older version are read by a newer one."""
    read = from_plain(GroupState, {"master_epoch": 3})

    assert read == GroupState(master_epoch=3)
