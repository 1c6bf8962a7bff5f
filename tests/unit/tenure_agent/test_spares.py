"""Processes that were guardians wait for another lease, and hear nothing of the one that ended."""

from __future__ import annotations

import asyncio
import json
import socket

from tenure_agent.drivers import spares
from tenure_agent.drivers.spares import Spares
from tenure_agent.guardian import zygote
from tenure_agent.guardian.spec import MESSAGE_BYTES_MAX, Spec, pack, unpack


def _spec(lease: str = "lease1") -> Spec:
    return Spec(
        folder="/nowhere",
        lease=lease,
        attempt=1,
        rank=0,
        node="n1",
        command=["true"],
        environment={},
        keep_on_loss=False,
        grace_ms=5_000,
        output_bytes_max=1_000,
        start_before_ms=0,
        fence_file="/nowhere/fence",
        trail_file="/nowhere/trail.jsonl",
    )


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


def test_what_was_meant_for_the_lease_that_ended_is_void() -> None:
    ours, theirs = _pair()
    with ours, theirs:
        late = {"do": "stop", "grace_ms": 0, "reason": "TIME_OVER"}
        ours.send(json.dumps(late).encode())
        ours.send(pack(_spec("next")))

        assert zygote._next_spec(theirs) == _spec("next")


def test_a_process_without_an_agent_ends() -> None:
    ours, theirs = _pair()
    with theirs:
        ours.close()

        assert zygote._next_spec(theirs) is None


async def test_the_one_used_last_comes_first() -> None:
    pool, first, second = Spares(), _pair(), _pair()
    pool.put(first[0])
    pool.put(second[0])

    assert pool.guard(_spec()) is second[0]
    assert unpack(second[1].recv(MESSAGE_BYTES_MAX)) == _spec()
    assert pool.guard(_spec()) is first[0]
    assert pool.guard(_spec()) is None
    for each in (*first, *second):
        each.close()


async def test_one_that_has_ended_is_passed_over() -> None:
    pool, living, dead = Spares(), _pair(), _pair()
    pool.put(living[0])
    pool.put(dead[0])
    dead[1].close()

    assert pool.guard(_spec()) is living[0]
    assert dead[0].fileno() == -1
    for each in living:
        each.close()


async def test_they_are_let_go_when_unused_too_many_or_at_the_end() -> None:
    pool = Spares(kept_s=0.02)
    unused = _pair()
    pool.put(unused[0])
    await asyncio.sleep(0.1)
    assert unused[1].recv(1) == b""

    pairs = [_pair() for _ in range(spares.SPARES_MAX + 1)]
    for ours, _ in pairs:
        pool.put(ours)
    assert pairs[-1][1].recv(1) == b""
    pool.close()
    assert all(theirs.recv(1) == b"" for _, theirs in pairs)
    for _, theirs in (unused, *pairs):
        theirs.close()
