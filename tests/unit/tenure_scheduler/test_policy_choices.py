"""Policies by name: ours, and those that a package offers that is really installed in a folder."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from structlog.testing import capture_logs
from tests.support.offered_policies import LABORATORY, offer
from tests.unit.tenure_core.planning.pool_in_time import Pool, node, spec

from tenure.scheduler.v1 import pool_pb2 as ppb
from tenure_cli.simulation.policy_words import PolicyWords, parse_policy
from tenure_core.errors import Invalid, NotFound, WrongState
from tenure_core.leases.lease import Advance, LeaseSpec
from tenure_core.policies.bundle import Policies
from tenure_core.policies.ordering import FIFO
from tenure_core.policies.placement import Greedy, HostSelection, RoundRobin
from tenure_core.policies.preemption import NoPreemption
from tenure_core.resources import ResourceVector
from tenure_scheduler import policy_choices
from tenure_scheduler.pack import from_policy, merged_policy, to_policy
from tenure_scheduler.pools import PoolPolicy
from tenure_scheduler.validation import check_policy
from tenure_sim.simulate import simulate
from tenure_sim.site import Site
from tenure_sim.workload import SimLease, Workload

BROKEN = """
class Odd:
    pass

class Angry:
    in_turn = False

    def key(self, fit):
        raise ZeroDivisionError("no key today")

def unmade():
    raise RuntimeError("not today")
"""
BROKEN_PROJECT = """
[project]
name = "broken-policies"
version = "0.1"
[project.entry-points."tenure.policies.placement"]
odd = "broken_policies:Odd"
angry = "broken_policies:Angry"
unmade = "broken_policies:unmade"
absent = "broken_policies:Nothing"
pack = "broken_policies:Odd"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example and a package of broken policies lie on the path, as installed ones do."""
    source, target = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    target.mkdir()
    (source / "broken_policies.py").write_text(BROKEN, encoding="utf-8")
    (source / "pyproject.toml").write_text(BROKEN_PROJECT, encoding="utf-8")
    offer(monkeypatch, target, source, LABORATORY)


def test_ours_are_known_without_any_package():
    assert policy_choices.PLACEMENTS.names() == ["pack", "spread", "first", "round-robin", "greedy"]
    assert policy_choices.PLACEMENTS["round-robin"] == RoundRobin()
    assert policy_choices.PLACEMENTS["greedy"] == Greedy()
    assert policy_choices.PREEMPTIONS["off"] == NoPreemption()


@pytest.mark.usefixtures("installed")
def test_what_a_package_offers_is_listed_behind_ours_and_never_instead():
    names = policy_choices.PLACEMENTS.names()
    assert names[:5] == ["pack", "spread", "first", "round-robin", "greedy"]
    assert names[5:] == ["absent", "angry", "last-first", "odd", "unmade"]
    assert policy_choices.PLACEMENTS["pack"] is HostSelection.BEST_FIT


def whole(policies: Policies, **leases: LeaseSpec) -> Pool:
    """Plan leases that arrive together on two nodes of two cores."""
    pool = Pool([node("n0", 2), node("n1", 2)], policies)
    for name, what in leases.items():
        pool.submit(name, what)
    pool.cycle()
    return pool


@pytest.mark.usefixtures("installed")
def test_a_pool_is_planned_by_what_a_package_offers():
    wire = ppb.Policy(
        name="policies/lab",
        ordering="theses-first",
        placement="last-first",
        preemption_policy="spare-theses",
        admission="short-only",
    )
    check_policy(wire)
    policies = to_policy(wire).bundle()
    thesis = {"for": "thesis"}
    pool = whole(
        policies,
        first=spec(nodes=4),
        thesis=spec(nodes=2, labels=thesis),
        long=spec(duration=4 * 3_600_000 + 1),
    )
    assert pool.rejected == {"long": "TOO_LONG_FOR_POOL"}
    assert [row.node for row in pool.run_rows("thesis")] == ["n1", "n1"]
    assert pool.starts == {"thesis": [0]}
    pool.submit("booked", spec(Advance(2), nodes=4))
    pool.cycle()
    assert pool.rejected["booked"] == "NOT_AVAILABLE_AT_START"


@pytest.mark.usefixtures("installed")
def test_a_trace_is_simulated_by_what_a_package_offers():
    words = parse_policy("easy+ordering=theses-first+placement=last-first", PolicyWords())
    leases = [
        SimLease("plain", 0, lease_of(10), 10),
        SimLease("thesis", 0, lease_of(5, labels={"for": "thesis"}), 5),
    ]
    site = Site.of_nodes(1, ResourceVector({"cpu": 1}))
    result = simulate(Workload.of("two", leases), site, words.bundle())
    assert result.starts == [5, 0]


def lease_of(duration: int, **more: object) -> LeaseSpec:
    plain = spec(duration=duration, **more)
    return LeaseSpec(
        plain.owner,
        plain.project,
        plain.pool,
        plain.terms,
        1,
        ResourceVector({"cpu": 1}),
        duration,
        labels=plain.labels,
    )


def test_an_unknown_name_is_refused_with_what_there_is():
    wire = ppb.Policy(
        name="policies/p", ordering="whim", placement="dice", preemption_policy="x", admission="y"
    )
    with pytest.raises(Invalid) as caught:
        check_policy(wire)
    assert [(each.field, each.reason) for each in caught.value.violations] == [
        ("policy.ordering", "UNKNOWN"),
        ("policy.placement", "UNKNOWN"),
        ("policy.preemption_policy", "UNKNOWN"),
        ("policy.admission", "UNKNOWN"),
    ]
    assert caught.value.violations[1].description == (
        "is one of pack, spread, first, round-robin, greedy, not 'dice'"
    )
    with pytest.raises(click.UsageError, match=r"placement is one of pack, .* not 'dice'"):
        parse_policy("easy+placement=dice", PolicyWords())
    for policy in (PoolPolicy("p", placement="dice"), PoolPolicy("p", ordering="whim")):
        with pytest.raises(NotFound) as missing:
            policy.bundle()
        assert missing.value.reason == "POLICY_NOT_INSTALLED"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["odd", "unmade", "absent"])
def test_what_cannot_be_made_or_is_no_such_policy_is_refused(name: str):
    with pytest.raises(Invalid) as caught:
        check_policy(ppb.Policy(name="policies/p", placement=name))
    assert [each.reason for each in caught.value.violations] == ["POLICY_FAILED"]


@pytest.mark.usefixtures("installed")
def test_a_policy_that_raises_is_named():
    pool = Pool([node("n0"), node("n1")], PoolPolicy("p", placement="angry").bundle())
    pool.submit("a", spec())
    with pytest.raises(WrongState) as caught:
        pool.cycle()
    assert (caught.value.reason, dict(caught.value.metadata)) == (
        "POLICY_FAILED",
        {"policy": "placement=angry"},
    )


def test_a_leader_without_the_package_preempts_nobody_and_says_so_once():
    lost = PoolPolicy("p", ordering="gone", placement="gone", preemption="gone", admission="gone")
    with capture_logs() as logs:
        found = [lost.bundle(falls_back=True) for _ in range(2)]
    assert found == [Policies(preemption=NoPreemption(), ordering=FIFO, depth_max=lost.depth)] * 2
    assert [(each["event"], each["kind"], each["instead"]) for each in logs] == [
        ("policy.missing", "ordering", "fifo"),
        ("policy.missing", "placement", "pack"),
        ("policy.missing", "preemption", "off"),
        ("policy.missing", "admission", "all"),
    ]


def test_a_policy_comes_back_as_it_was_set_and_one_of_ours_takes_its_place():
    wire = ppb.Policy(name="policies/p", preemption_policy="spare-theses", admission="no-advance")
    stored = to_policy(wire)
    shown = from_policy(stored)
    assert (shown.preemption, shown.preemption_policy) == (0, "spare-theses")
    assert shown.admission == "no-advance"
    ours = ppb.Policy(name="policies/p", preemption=ppb.Policy.PREEMPTION_OFF)
    changed = merged_policy(stored, ours, ["preemption"])
    assert (changed.preemption, changed.admission) == ("off", "no-advance")
