"""Who may read what a lease prints."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any, cast

import pytest

from tenure_core.agents.work import Allocation, AllocationState, Slot
from tenure_core.errors import DomainError, WrongState
from tenure_core.identity.grants import Scope
from tenure_core.identity.viewer import Viewer
from tenure_core.leases.lease import OnLoss
from tenure_registry.usecases import RegistryUseCases
from tenure_registry.values import LogRequest

SLOT = Slot("l1", 1, 0)


class Store:
    """Has one allocation, and says so when its agent is asked for."""

    async def find_allocation(self, lease: str, attempt: int, rank: int) -> Allocation:
        return Allocation(
            SLOT,
            "a1",
            "main",
            AllocationState.RUNNING,
            OnLoss.STOP,
            live=True,
            started=True,
            owner="ann",
            project="physics",
        )

    async def get_agent(self, agent: str) -> object:
        raise WrongState("FOUND", "The agent is asked for the log.")


@pytest.mark.parametrize(
    ("viewer", "answer"),
    [
        (Viewer("ann", sees_all=False), "FOUND"),
        (Viewer("ann", sees_all=False, scope=Scope(pools=frozenset({"main"}))), "FOUND"),
        (Viewer("bob", sees_all=False, administers=frozenset({"physics"})), "FOUND"),
        (Viewer("ops", sees_all=True), "FOUND"),
        (Viewer("ann", sees_all=False, scope=Scope(pools=frozenset({"x"}))), "hidden"),
        (Viewer("ann", sees_all=False, scope=Scope(projects=frozenset({"x"}))), "hidden"),
        (Viewer("bob", sees_all=False, administers=frozenset({"x"})), "hidden"),
        (Viewer("bob", sees_all=False), "hidden"),
    ],
)
async def test_a_log_is_for_whoever_may_see_the_lease(viewer: Viewer, answer: str) -> None:
    unused = cast("Any", None)
    cases = RegistryUseCases(
        cast("Any", Store()), unused, unused, clock=unused, wall=unused, capacity_limits={}
    )

    with pytest.raises(DomainError) as refused:
        async with aclosing(cases.stream_logs(LogRequest("", SLOT), viewer)) as parts:
            await anext(parts)

    assert refused.value.reason == answer.replace("hidden", "ALLOCATION_NOT_FOUND")
