from __future__ import annotations

from dataclasses import replace

from tests.support.admission import a_lease

from tenure_core.admission.predicates import (
    Limits,
    Refusal,
    Rule,
    Standings,
    dependencies,
    dependency_cycle,
    image_allowed,
    pool_access,
    pool_open,
    refusals,
    start_time,
)
from tenure_core.admission.quotas import Excess, Held, Limit
from tenure_core.admission.waiting import DependencyEnd, DependencyState


def _depends(*ends: DependencyEnd, any_end: bool = False) -> Refusal | None:
    states = tuple(DependencyState(f"d{n}", end, any_end) for n, end in enumerate(ends))
    return dependencies(replace(a_lease(), dependencies=states))


def test_a_dependency_under_way_is_waited_for() -> None:
    assert _depends(DependencyEnd.UNDER_WAY, DependencyEnd.SUCCEEDED) == Refusal(
        Rule.DEPENDENCIES, "DEPENDENCY_UNDER_WAY", waiting_for=("d0",)
    )
    assert _depends(DependencyEnd.SUCCEEDED) is None


def test_a_dependency_that_can_never_succeed_is_a_hard_refusal() -> None:
    failed = _depends(DependencyEnd.UNDER_WAY, DependencyEnd.OTHERWISE)
    missing = _depends(DependencyEnd.MISSING, any_end=True)

    assert failed == Refusal(Rule.DEPENDENCIES, "DEPENDENCY_FAILED", True, ("d0", "d1"))
    assert missing == Refusal(Rule.DEPENDENCIES, "DEPENDENCY_MISSING", True, ("d0",))


def test_a_dependency_on_any_end_is_content_with_a_failure() -> None:
    assert _depends(DependencyEnd.OTHERWISE, any_end=True) is None


def test_the_start_time_itself_is_late_enough() -> None:
    assert start_time(10, 9) == Refusal(Rule.START_TIME, "START_TIME_NOT_REACHED", until=10)
    assert start_time(10, 10) is None


def test_all_refusals_are_told_at_once_in_order() -> None:
    lease = replace(a_lease(amounts={"cpu": 4}), not_before=10)
    limit = Limit({"cpu": 5}, leases=1)
    standings = Standings(owners={"ann": Held({"cpu": 2}, leases=1)})

    found = refusals(lease, 0, standings, Limits(owners={"ann": limit}))

    assert found == [
        Refusal(Rule.START_TIME, "START_TIME_NOT_REACHED", until=10),
        Refusal(Rule.OWNER_QUOTA, "OWNER_QUOTA_EXCEEDED", over=(Excess("cpu", 2, 4, 5),)),
        Refusal(Rule.LEASE_COUNT, "LEASE_LIMIT_REACHED", limit=1),
    ]


def test_placement_is_limited_to_permitted_pools() -> None:
    assert pool_access(None, ["a", "b"]).pools == ("a", "b")
    assert pool_access("b", ["a", "b"]).pools == ("b",)
    refused = [pool_access("c", ["a"]), pool_access(None, [])]
    assert [(entry.pools, entry.refusal and entry.refusal.reason) for entry in refused] == [
        ((), "POOL_NOT_ALLOWED"),
        ((), "NO_POOL_ALLOWED"),
    ]
    assert all(entry.refusal is not None and entry.refusal.hard for entry in refused)


def test_a_cordoned_pool_is_waited_for_and_a_forbidden_image_is_not() -> None:
    cordoned = pool_open("a", {"a"})
    forbidden = image_allowed("evil", {"good"})

    assert cordoned is not None
    assert not cordoned.hard
    assert forbidden is not None
    assert forbidden.hard
    assert image_allowed("any", None) is None


def test_a_cycle_of_dependencies_is_found_and_named() -> None:
    edges = {"a": ["b", "x"], "b": ["c"], "c": ["a"], "x": ["y"]}

    assert dependency_cycle(edges, "a") == ("a", "b", "c")
    assert dependency_cycle(edges, "x") == ()
    assert dependency_cycle({"a": ["a"]}, "a") == ("a",)
    assert dependency_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}, "a") == ()
