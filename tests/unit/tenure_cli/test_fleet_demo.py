"""What the demo of the autoscaler checks: each check finds what it is for."""

from __future__ import annotations

import pytest

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.autoscaler.v1 import machine_pb2 as mpb
from tenure_cli.demo.fleet import BOOKED_AT_MS, Look, check_fleet, fleet_leases
from tenure_cli.demo.submitting import DemoState
from tenure_runtime.rpc.wire import to_timestamp

BEGAN = 1_000_000
START = BEGAN + BOOKED_AT_MS
UP, GONE = mpb.Machine.STATE_RUNNING, mpb.Machine.STATE_REMOVED


def played(*, began_ms: int = START + 100, undone: str = "") -> DemoState:
    """Return a demo of which all leases are done, the booking since `began_ms`."""
    state = DemoState(fleet_leases(), BEGAN)
    for lease in state.leases:
        done = lpb.Lease.STATE_FAILED if lease.id == undone else lpb.Lease.STATE_DONE
        state.known[lease.id] = lpb.Lease(name=f"leases/{lease.id}", state=done)
    booking = state.known["booking"]
    booking.start_time.CopyFrom(to_timestamp(began_ms))
    for node in ("machine-1", "machine-2"):
        booking.placements.add(node=f"nodes/{node}")
    return state


def look(at_ms: int, *up: str, gone: tuple[str, ...] = ()) -> Look:
    return Look(at_ms, dict.fromkeys(up, UP) | dict.fromkeys(gone, GONE))


BEFORE = look(START - 500, "machine-1", "machine-2")
LAST = look(START + 9_000, gone=("machine-1", "machine-2"))


def wrong(state: DemoState, *looks: Look) -> dict[str, tuple[str, ...]]:
    return {check.name: check.wrong for check in check_fleet(state, looks) if check.wrong}


def test_a_demo_as_it_should_be_has_nothing_wrong() -> None:
    assert wrong(played(), look(BEGAN - 500), BEFORE, LAST) == {}


@pytest.mark.parametrize(
    ("looks", "name"),
    [
        ((look(BEGAN - 1, "machine-1"), BEFORE, LAST), "no machine before anything was asked for"),
        (
            (look(START - 1, "machine-1"), LAST),
            "the booking's machines were up before its start",
        ),
        (
            (look(BEGAN, *"abcd"), BEFORE, LAST),
            "never more machines than the group may have",
        ),
        ((BEFORE,), "no machine is left"),
    ],
)
def test_what_the_machines_should_not_do_is_told(looks: tuple[Look, ...], name: str) -> None:
    assert list(wrong(played(), *looks)) == [name]


def test_a_booking_that_begins_late_and_a_lease_that_fails_are_told() -> None:
    late = wrong(played(began_ms=START + 2_001), BEFORE, LAST)
    failed = wrong(played(undone="queue-3"), BEFORE, LAST)

    assert late == {"the booking began at its start": ("it began 2001 ms after it",)}
    assert failed == {"leases done": ("queue-3",)}
