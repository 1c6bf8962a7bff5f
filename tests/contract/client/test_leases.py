"""What a program does with leases through the SDK, against the real suite."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

import pytest

from tenure.client import (
    Conflict,
    Invalid,
    LeaseEnded,
    LeaseState,
    NotFound,
    WrongState,
    connect,
)

PRINT = [sys.executable, "-c", "print('hello'); print('world')"]


def test_work_runs_under_a_lease_and_its_output_is_read(plane):
    lease = plane.submit(command=PRINT, cpu="0.5", memory="64Mi", duration="1m")
    info = lease.result(within_s=30)
    assert (info.state, info.exit_code, info.owner) == (LeaseState.DONE, 0, "operator")
    assert info.amounts == {"cpu": 500, "memory": 64 * 1024**2}
    assert b"".join(lease.output()) == b"hello\nworld\n"


def test_work_that_fails_raises_with_its_exit_code(plane):
    lease = plane.submit(command=[sys.executable, "-c", "raise SystemExit(7)"], cpu=0.1)
    with pytest.raises(LeaseEnded) as raised:
        lease.result(within_s=30)
    assert raised.value.lease.exit_code == 7
    assert raised.value.lease.state is LeaseState.FAILED
    assert isinstance(raised.value, WrongState)


def test_a_lease_is_held_for_a_block_and_given_back(plane):
    with plane.hold(nodes=2, spread=True, cpu=1, duration="5m", within_s=30) as lease:
        assert lease.info.state is LeaseState.ACTIVE
        assert len(set(lease.info.nodes)) == 2
    assert lease.wait(within_s=30).state is LeaseState.CANCELLED


def test_a_lease_is_given_back_when_the_block_fails(plane):
    with pytest.raises(ZeroDivisionError), plane.hold(cpu=1, within_s=30) as lease:
        _ = 1 / 0
    assert lease.wait(within_s=30).state is LeaseState.CANCELLED


def test_what_does_not_come_in_time_is_given_back_too(plane):
    with (
        pytest.raises(TimeoutError, match="not active, after 1 s"),
        plane.hold(start=timedelta(hours=1), cpu=1, duration="1m", within_s=1, labels={"l": "te"}),
    ):
        pytest.fail("it never came")
    (late,) = plane.leases(labels={"l": "te"})
    assert plane.lease(late.id).wait(within_s=30).state is LeaseState.CANCELLED


def test_a_hold_that_is_refused_says_why(plane):
    with (
        pytest.raises((LeaseEnded, Invalid)) as raised,
        plane.hold(immediate=True, nodes=50, cpu=4, spread=True, within_s=30),
    ):
        pytest.fail("there are two nodes")
    assert raised.value.reason


def test_a_repeat_with_the_same_request_id_is_the_same_lease(plane):
    request_id = "6dbf3ae1-2a1c-4e0b-8ad4-7d1a8c9d9a10"
    first = plane.submit(request_id=request_id, cpu=1, start=timedelta(hours=2), duration=60)
    message = first.info.message
    again = plane.thread.run(_repeat(plane, message, request_id))
    assert again.id == first.id
    first.cancel()


async def _repeat(plane, message, request_id):
    from tenure.admission.v1 import admission_pb2 as apb
    from tenure.admission.v1 import lease_pb2 as lpb
    from tenure.client import LeaseInfo

    client, stub = await plane.asynchronous.admission()
    wanted = lpb.Lease()
    wanted.CopyFrom(message)
    asked = {"terms", "node_count", "amounts", "duration", "max_attempts", "on_failure", "on_loss"}
    for field, _ in message.ListFields():
        if field.name not in {*asked, "work"}:
            wanted.ClearField(field.name)
    request = apb.CreateLeaseRequest(lease=wanted, request_id=request_id)
    return LeaseInfo.of((await client.call(stub.CreateLease, request)).lease)


def test_all_that_is_wrong_is_said_at_once(plane):
    with pytest.raises(Invalid) as raised:
        plane.submit(nodes=0, cpu=1, duration=0.5)
    fields = {violation.field for violation in raised.value.violations}
    assert {"lease.node_count", "lease.duration"} <= fields


def test_a_check_makes_nothing(plane):
    before = {lease.id for lease in plane.leases()}
    assert plane.check(cpu=1, duration="1m").node_count == 1
    assert {lease.id for lease in plane.leases()} == before


def test_terms_change_only_as_seen(plane):
    lease = plane.submit(cpu=1, start=timedelta(hours=3), duration="10m")
    lease.wait(LeaseState.SCHEDULED, within_s=30)
    stale = plane.lease(lease.id)
    lease.change(duration="20m")
    lease.settled(within_s=30)
    assert lease.refresh().duration == timedelta(minutes=20)
    with pytest.raises(Conflict) as raised:
        stale.change(duration="30m")
    assert raised.value.reason == "ETAG_MISMATCH"
    lease.cancel()


def test_a_lease_that_is_not_there_is_not_found(plane):
    with pytest.raises(NotFound) as raised:
        plane.lease("no-such-lease")
    assert raised.value.reason == "LEASE_NOT_FOUND"


def test_a_lease_is_explained_and_forecast(plane):
    lease = plane.submit(cpu=1, start=timedelta(hours=4), duration="10m")
    lease.wait(LeaseState.SCHEDULED, within_s=30)
    assert lease.explain().sentences
    forecast = plane.forecast(cpu=1, duration="1m")
    assert forecast.accepted
    lease.cancel()


def test_lists_filter_and_page(plane):
    made = {
        plane.submit(cpu=0.1, start=timedelta(hours=5 + n), duration="1m", labels={"page": "y"}).id
        for n in range(5)
    }
    assert {lease.id for lease in plane.leases(labels={"page": "y"})} == made
    assert len(plane.leases(labels={"page": "y"}, limit=3)) == 3
    for lease_id in made:
        plane.lease(lease_id).cancel()
    html = plane.leases(labels={"page": "y"})._repr_html_()
    assert all(lease_id in html for lease_id in made)


def test_threads_share_a_plane(plane):
    found = []

    def ask():
        found.append(len(plane.leases(limit=1)))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 8


def test_the_environment_says_where_and_who(suite, monkeypatch):
    for name, value in suite.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TENURE_DATA", "/nowhere")
    with connect() as plane:
        assert plane.leases(limit=1) is not None
        with pytest.raises(NotFound) as raised:
            plane.forecast(cpu=1)
    assert raised.value.reason == "SUITE_NOT_FOUND"
