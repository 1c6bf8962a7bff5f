"""The gate: wrong credentials get one answer and run out; callers are held to their rate."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from tenure_core.errors import DomainError, Exhausted, Unauthenticated
from tenure_core.identity.throttling import Buckets, Rate
from tenure_runtime.rpc.gate import Gate
from tenure_runtime.rpc.identity import Identity, Keyring, Role, create_key

PEER = "ipv4:10.0.0.1:50000"
FEW = Rate(per_s=0.1, burst=3)


class Clock:
    now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def keyring(*names: str, role: Role = Role.USER) -> tuple[Keyring, dict[str, str]]:
    made = {name: create_key(name, {role}) for name in names}
    return Keyring(entry for _, entry in made.values()), {n: key for n, (key, _) in made.items()}


async def answer(gate: Gate, credential: str, peer: str = PEER) -> str:
    try:
        return (await gate.admit(f"Bearer {credential}", peer)).name
    except DomainError as error:
        return f"{error.reason}: {error.message}"


def wrong_ones(right: str) -> dict[str, str]:
    return {
        "unknown caller": f"tnr_nobody_{'0' * 64}",
        "wrong secret": f"{right[:-1]}{'0' if right[-1] != '0' else '1'}",
        "no form": "tnr_x",
        "another kind": "tnk_abc_def",
        "no token": "a.b.c",
        "huge": "x" * 100_000,
    }


async def test_whatever_is_wrong_with_a_key_the_answer_is_the_same() -> None:
    ring, keys = keyring("ann")
    gate = Gate(ring, failures=Rate(per_s=1, burst=100))
    answers = {what: await answer(gate, each) for what, each in wrong_ones(keys["ann"]).items()}
    assert set(answers.values()) == {"API_KEY_INVALID: The API key is not known here."}


async def test_it_takes_as_long_for_an_unknown_caller_as_for_a_wrong_secret() -> None:
    ring, keys = keyring("ann")
    wrong = wrong_ones(keys["ann"])

    async def median_us(credential: str) -> float:
        gate = Gate(ring, failures=Rate(per_s=1e9, burst=1e9))
        times = []
        for _ in range(600):
            started = time.perf_counter_ns()
            await answer(gate, credential)
            times.append((time.perf_counter_ns() - started) / 1_000)
        return statistics.median(times)

    ratios = []
    for _ in range(5):
        ratios.append(
            await median_us(wrong["unknown caller"]) / await median_us(wrong["wrong secret"])
        )
    # The best of five: other processes on the machine only ever add noise.
    assert min(abs(ratio - 1) for ratio in ratios) < 0.25, ratios


async def test_a_peer_that_fails_too_often_waits_and_others_do_not() -> None:
    clock = Clock()
    ring, keys = keyring("ann", "bob")
    gate = Gate(ring, failures=FEW, monotonic_ms=clock)
    wrong = wrong_ones(keys["ann"])["wrong secret"]
    assert await answer(gate, keys["bob"]) == "bob"

    tries = [await answer(gate, wrong) for _ in range(5)]
    locked_out = await answer(gate, keys["ann"])

    assert [each.partition(":")[0] for each in tries] == [
        *["API_KEY_INVALID"] * 3,
        *["TOO_MANY_FAILURES"] * 2,
    ]
    assert locked_out.startswith("TOO_MANY_FAILURES"), "a right guess must not show"
    assert await answer(gate, keys["bob"]) == "bob", "it was right before"
    assert await answer(gate, keys["ann"], "ipv4:10.0.0.2:50000") == "ann"
    clock.now_ms += 10_000
    assert await answer(gate, keys["ann"]) == "ann"


async def test_the_wait_of_a_peer_is_said_and_its_port_does_not_matter() -> None:
    clock = Clock()
    ring, keys = keyring("ann")
    gate = Gate(ring, failures=FEW, monotonic_ms=clock)
    for port in range(3):
        await answer(gate, wrong_ones(keys["ann"])["wrong secret"], f"ipv6:%5B::1%5D:{port}")
    with pytest.raises(Exhausted) as caught:
        await gate.admit(f"Bearer {keys['ann']}", "ipv6:%5B::1%5D:77")
    assert (caught.value.reason, caught.value.retry_after_ms) == ("TOO_MANY_FAILURES", 10_000)


async def test_tokens_that_have_expired_do_not_count_as_failures() -> None:
    class Expired:
        async def identify(self, credential: str) -> Identity | None:
            raise Unauthenticated("TOKEN_EXPIRED", f"{len(credential)}")

    ring, keys = keyring("ann")
    gate = Gate(ring, [Expired()], failures=FEW)
    for _ in range(10):
        await answer(gate, "old")
    assert await answer(gate, keys["ann"]) == "ann"


@pytest.mark.parametrize(
    ("role", "expected"),
    [(Role.USER, ["ann"] * 2 + ["RATE_LIMITED"] * 2), (Role.SERVICE, ["ann"] * 4)],
)
async def test_a_caller_is_held_to_its_rate_and_services_are_not(
    role: Role, expected: list[str]
) -> None:
    clock = Clock()
    ring, keys = keyring("ann", "bob", role=role)
    gate = Gate(ring, calls=Rate(per_s=1, burst=2), monotonic_ms=clock)
    got = [(await answer(gate, keys["ann"])).partition(":")[0] for _ in range(4)]
    assert got == expected
    assert await answer(gate, keys["bob"]) == "bob"
    clock.now_ms += 1_000
    assert await answer(gate, keys["ann"]) == "ann"


async def test_who_calls_too_often_is_told_when_to_come_back() -> None:
    ring, keys = keyring("ann")
    gate = Gate(ring, calls=Rate(per_s=4, burst=1), monotonic_ms=Clock())
    await answer(gate, keys["ann"])
    with pytest.raises(Exhausted) as caught:
        await gate.admit(f"Bearer {keys['ann']}", PEER)
    assert (caught.value.retry_after_ms, dict(caught.value.metadata)) == (250, {"caller": "ann"})


def test_buckets_forget_the_names_that_are_longest_unused() -> None:
    buckets = Buckets(Rate(per_s=1, burst=1), names_max=2)
    spent: Callable[[Any], bool] = lambda name: buckets.wait_ms(name, 0) > 0  # noqa: E731
    for name in ("a", "b", "c"):
        buckets.take(name, 0)
    assert [spent(name) for name in ("a", "b", "c")] == [False, True, True]
