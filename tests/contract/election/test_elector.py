"""What every elector promises, whatever it keeps its elections in."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest
import pytest_asyncio
from tests.contract.election.stores import TTL_S, LastingStore, Store

from tenure_core.errors import DomainError, WrongState
from tenure_runtime.clocks import BootClock
from tenure_runtime.election.elector import Elector, Leader

SCOPE = "pool/gpu"
QUICKLY_S = 1.5
TAKEOVER_S = TTL_S + 1.0


@pytest_asyncio.fixture
async def new_elector(store: Store) -> AsyncIterator[Callable[[], Elector]]:
    made: list[Elector] = []

    def make() -> Elector:
        made.append(store.elector())
        return made[-1]

    yield make
    for elector in made:
        await elector.close()


async def test_one_of_two_candidates_leads_and_resigning_hands_over_at_once(
    new_elector: Callable[[], Elector],
) -> None:
    first, second = new_elector(), new_elector()
    leadership = await first.campaign(SCOPE, "a:1")
    waiting = asyncio.create_task(second.campaign(SCOPE, "b:2"))
    await asyncio.sleep(0.3)
    assert (leadership.valid(), leadership.lost.is_set(), waiting.done()) == (True, False, False)
    assert await second.leader(SCOPE) == Leader("a:1", leadership.token)
    began = time.monotonic()
    await leadership.resign()
    assert (leadership.valid(), leadership.lost.is_set()) == (False, True)
    successor = await asyncio.wait_for(waiting, QUICKLY_S)
    assert time.monotonic() - began < QUICKLY_S
    assert successor.valid()
    assert successor.token > leadership.token
    assert successor.scope == SCOPE
    assert await first.leader(SCOPE) == Leader("b:2", successor.token)
    await leadership.resign()
    assert successor.valid()


async def test_an_observer_sees_each_leader_in_turn(new_elector: Callable[[], Elector]) -> None:
    first, second = new_elector(), new_elector()
    async with aclosing(second.observe(SCOPE)) as seen:  # type: ignore[type-var]
        assert await anext(seen) is None
        leadership = await first.campaign(SCOPE, "a:1")
        assert await asyncio.wait_for(anext(seen), 3) == Leader("a:1", leadership.token)
        await leadership.resign()
        assert await asyncio.wait_for(anext(seen), 3) is None
        leadership = await first.campaign(SCOPE, "a:2")
        assert await asyncio.wait_for(anext(seen), 3) == Leader("a:2", leadership.token)


async def test_a_candidate_that_is_cancelled_blocks_nobody(
    new_elector: Callable[[], Elector],
) -> None:
    first, second, third = new_elector(), new_elector(), new_elector()
    leadership = await first.campaign(SCOPE, "a")
    impatient = asyncio.create_task(second.campaign(SCOPE, "b"))
    await asyncio.sleep(0.2)
    patient = asyncio.create_task(third.campaign(SCOPE, "c"))
    await asyncio.sleep(0.2)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    await leadership.resign()
    successor = await asyncio.wait_for(patient, QUICKLY_S)
    assert await first.leader(SCOPE) == Leader("c", successor.token)
    await successor.resign()
    again = await asyncio.wait_for(second.campaign(SCOPE, "b again"), QUICKLY_S)
    assert again.valid()


async def test_elections_of_one_replica_do_not_depend_on_each_other(
    new_elector: Callable[[], Elector],
) -> None:
    first, second = new_elector(), new_elector()
    one = await first.campaign("pool/a", "1")
    two = await first.campaign("pool/b", "1")
    other = await second.campaign("group/a", "2")
    await one.resign()
    taken = await asyncio.wait_for(second.campaign("pool/a", "2"), QUICKLY_S)
    assert (one.valid(), two.valid(), other.valid(), taken.valid()) == (False, True, True, True)
    assert await first.leader("pool/b") == Leader("1", two.token)


async def test_closing_an_elector_gives_all_its_scopes_back(
    store: Store, new_elector: Callable[[], Elector]
) -> None:
    leaving, second = store.elector(), new_elector()
    held = [await leaving.campaign(f"pool/{name}", "x") for name in "abc"]
    waiting = [asyncio.create_task(second.campaign(f"pool/{name}", "y")) for name in "abc"]
    await asyncio.sleep(0.1)
    await leaving.close()
    taken = await asyncio.wait_for(asyncio.gather(*waiting), QUICKLY_S)
    assert [each.valid() for each in held] == [False] * 3
    assert [each.valid() for each in taken] == [True] * 3


async def test_a_replica_runs_once_for_a_scope_and_may_again_when_it_is_over(
    new_elector: Callable[[], Elector],
) -> None:
    elector = new_elector()
    leadership = await elector.campaign(SCOPE, "a")
    with pytest.raises(WrongState) as refused:
        await elector.campaign(SCOPE, "a")
    assert refused.value.reason == "ALREADY_CANDIDATE"
    assert leadership.valid()
    await leadership.resign()
    again = await asyncio.wait_for(elector.campaign(SCOPE, "a"), QUICKLY_S)
    assert again.token > leadership.token


@pytest.mark.parametrize("scope", ["pool", "pool/", "pool/a/b", "/a", "pool/a b", "Pool/a"])
async def test_a_scope_that_could_lie_below_another_is_refused(
    new_elector: Callable[[], Elector], scope: str
) -> None:
    with pytest.raises(ValueError, match="a scope is kind/name"):
        await new_elector().campaign(scope, "a")


async def test_a_leader_that_falls_silent_is_followed_within_its_time_and_a_second(
    store: Store, new_elector: Callable[[], Elector]
) -> None:
    first, second = new_elector(), new_elector()
    leadership = await first.campaign(SCOPE, "a")
    waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
    await asyncio.sleep(0.1)
    await store.make_silent(first, SCOPE)
    successor = await asyncio.wait_for(waiting, TAKEOVER_S)
    assert not leadership.valid()
    assert successor.token > leadership.token


class _SuspendedClock(BootClock):
    """A clock that counted a suspension of the machine, which timers did not notice."""

    suspended_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.suspended_ms


async def test_a_leader_whose_machine_was_suspended_leads_no_more_even_if_nobody_followed(
    lasting_store: LastingStore,
) -> None:
    clock = _SuspendedClock()
    elector = lasting_store.elector(clock)
    try:
        leadership = await elector.campaign(SCOPE, "a")
        assert leadership.valid()
        clock.suspended_ms = TTL_S * 1000
        assert not leadership.valid()
        # The store still takes renewals from it: what ended must not come back to life.
        await asyncio.wait_for(leadership.lost.wait(), TTL_S)
        assert not leadership.valid()
        again = await asyncio.wait_for(elector.campaign(SCOPE, "a"), TAKEOVER_S)
        assert again.token > leadership.token
    finally:
        await elector.close()


def _lines(process: subprocess.Popen[str]) -> list[tuple[str, int]]:
    assert process.stdout is not None
    # Killed while it wrote, it may have left the last line torn.
    *whole, _torn = process.stdout.read().split("\n")
    rows = [line.split() for line in whole]
    return [(state, int(at_ms)) for state, at_ms in rows]


@pytest.mark.faults
async def test_a_leader_that_was_stopped_knows_with_its_first_look_that_it_leads_no_more(
    lasting_store: LastingStore,
) -> None:
    clock = BootClock()
    command = lasting_store.candidate_command(SCOPE)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        elector = lasting_store.elector()
        try:
            async with asyncio.timeout(20):
                while await elector.leader(SCOPE) is None:
                    await asyncio.sleep(0.05)
            waiting = asyncio.create_task(elector.campaign(SCOPE, "us"))
            await asyncio.sleep(0.5)
            stopped_ms = clock.now_ms()
            process.send_signal(signal.SIGSTOP)
            successor = await asyncio.wait_for(waiting, TAKEOVER_S)
            won_ms = clock.now_ms()
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(0.5)
            assert successor.valid()
        finally:
            process.kill()
            await elector.close()
        lines = _lines(process)
    valid = [at_ms for state, at_ms in lines if state == "valid"]
    invalid = [at_ms for state, at_ms in lines if state == "invalid"]
    assert valid and max(valid) <= stopped_ms + 50, "it thought it led after it was stopped"
    assert invalid and min(invalid) >= won_ms - 50, "it was woken only after the other had won"


@pytest.mark.faults
async def test_a_killed_leader_is_followed_within_its_time_and_a_second(
    lasting_store: LastingStore,
) -> None:
    command = lasting_store.candidate_command(SCOPE)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        elector = lasting_store.elector()
        try:
            async with asyncio.timeout(20):
                while (old := await elector.leader(SCOPE)) is None:
                    await asyncio.sleep(0.05)
            waiting = asyncio.create_task(elector.campaign(SCOPE, "us"))
            await asyncio.sleep(0.2)
            process.kill()
            successor = await asyncio.wait_for(waiting, TAKEOVER_S)
            assert successor.token > old.token
        finally:
            process.kill()
            await elector.close()


@pytest.mark.faults
async def test_a_store_that_is_killed_and_comes_back_in_time_costs_no_leadership(
    lasting_store: LastingStore,
) -> None:
    ttl_s = 4 * TTL_S
    first, second = (lasting_store.elector(ttl_s=ttl_s) for _ in range(2))
    try:
        leadership = await first.campaign(SCOPE, "a")
        waiting = asyncio.create_task(second.campaign(SCOPE, "b"))
        await asyncio.sleep(0.2)
        gone = time.monotonic()
        await lasting_store.kill()
        await lasting_store.come_back()
        # It was renewed a third of its life ago at most, and will be within a third from now.
        assert time.monotonic() - gone < ttl_s / 3, "the store took too long to tell"
        await asyncio.sleep(ttl_s)
        assert (leadership.valid(), waiting.done()) == (True, False)
        await leadership.resign()
        successor = await asyncio.wait_for(waiting, TAKEOVER_S + 2)
        assert successor.token > leadership.token
        assert not leadership.valid()
    finally:
        await first.close()
        await second.close()


@pytest.mark.faults
async def test_a_leader_whose_store_stays_away_steps_down_by_itself(
    lasting_store: LastingStore,
) -> None:
    elector = lasting_store.elector()
    try:
        leadership = await elector.campaign(SCOPE, "a")
        await lasting_store.kill()
        began = time.monotonic()
        while leadership.valid():
            assert time.monotonic() - began < TTL_S + 0.2
            await asyncio.sleep(0.02)
        await asyncio.wait_for(leadership.lost.wait(), 3)
        with pytest.raises(DomainError) as refused:
            await elector.leader(SCOPE)
        assert refused.value.reason.endswith("_UNAVAILABLE")
        await lasting_store.come_back()
        again = await asyncio.wait_for(elector.campaign(SCOPE, "a"), TAKEOVER_S + 2)
        assert again.valid()
    finally:
        await elector.close()
