"""What notebooks show is escaped, to scale and never empty."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tenure.admission.v1 import lease_pb2 as lpb
from tenure.client.lease_info import LeaseInfo, LeaseTable, number_of, state_of
from tenure_core.leases.states import LeaseState
from tenure_runtime.rpc.wire import to_duration, to_timestamp

HOUR = 3_600_000
NOON = 1_801_396_800_000


def info(lease_id="a", state=lpb.Lease.STATE_ACTIVE, start=NOON, hours=1, **more):
    lease = lpb.Lease(
        name=f"leases/{lease_id}", state=state, node_count=1, duration=to_duration(hours * HOUR)
    )
    if start is not None:
        lease.start_time.CopyFrom(to_timestamp(start))
    for name, value in more.items():
        setattr(lease, name, value)
    return LeaseInfo.of(lease)


def bars(html):
    svg = ElementTree.fromstring(html[html.index("<svg") :])
    return [
        (float(each.get("x")), float(each.get("width")))
        for each in svg.iter("{http://www.w3.org/2000/svg}rect")
    ]


def test_bars_are_to_scale():
    html = LeaseTable([info("a", hours=1), info("b", start=NOON + HOUR, hours=3)])._repr_html_()
    (first, wide), (second, wider) = bars(html)
    assert second == pytest.approx(first + wide, abs=0.2)
    assert wider == pytest.approx(3 * wide, rel=0.01)
    assert second + wider == pytest.approx(720, abs=0.2)


def test_a_lease_without_a_time_has_a_row_and_no_bar():
    html = LeaseTable([info("a", lpb.Lease.STATE_QUEUED, start=None)])._repr_html_()
    assert "<td>queued</td>" in html and "<svg" not in html


def test_what_people_wrote_is_escaped():
    html = LeaseTable([info(reason="<SCRIPT>&")])._repr_html_()
    assert "<script>" not in html.lower()
    assert "&lt;script&gt;&amp;" in html


def test_no_leases_are_said_to_be_none():
    assert LeaseTable()._repr_html_() == "<p>no leases</p>"


def test_every_state_goes_both_ways_and_an_unknown_one_is_said():
    for state in LeaseState:
        assert state_of(number_of(state)) is state
    assert len(lpb.Lease.State.values()) == len(LeaseState) + 1
    for number in (0, 99):
        with pytest.raises(ValueError, match="newer client"):
            state_of(number)


def test_an_info_says_whether_it_ended_and_how():
    done = info(state=lpb.Lease.STATE_DONE, exit_code=0)
    failed = info(state=lpb.Lease.STATE_FAILED, exit_code=3)
    assert (done.ended, done.succeeded) == (True, True)
    assert (failed.ended, failed.succeeded, failed.exit_code) == (True, False, 3)
    assert not info().ended
    assert re.search("<td>a</td>", info()._repr_html_())
