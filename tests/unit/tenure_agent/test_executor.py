"""The executor's rules, with a driver that does what it is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tenure_agent.drivers.bare import BareDriver
from tenure_agent.executor import Executor, Parts
from tenure_agent.fence import Fence
from tenure_agent.inbox import Received, Wanted
from tenure_agent.ledger import Ledger
from tenure_agent.outbox import Outbox
from tenure_agent.ports import Listener
from tenure_agent.reporting import Reporting
from tenure_agent.spans import Spans
from tenure_agent.work import Command, Event, Key, Kind, Launch, Observed, State, Verb


class _Clock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@dataclass
class _Driver:
    """Remembers what it was told, in order; the test says what comes of it."""

    told: list[tuple[str, Key]] = field(default_factory=list)
    never_began: frozenset[Key] = frozenset()
    fails: bool = False
    suspended_keeps: tuple[str, ...] = ("memory",)

    def listen(self, listener: Listener) -> None:
        self.tell = listener

    def start(self, key: Key, launch: Launch, *, before_ms: int, traceparent: str) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
        self.told.append(("start", key))

    def suspend(self, key: Key) -> None:
        self.told.append(("suspend", key))

    def resume(self, key: Key) -> None:
        self.told.append(("resume", key))

    def stop(self, key: Key, *, grace_ms: int, reason: str) -> None:
        self.told.append((f"stop {grace_ms} {reason}", key))

    def recover(self, keys: Mapping[Key, bool]) -> frozenset[Key]:
        return self.never_began & frozenset(keys)


class _World:
    """An executor with everything around it, on a folder; open it again for a restart."""

    def __init__(self, folder: Path, never_began: frozenset[Key] = frozenset()) -> None:
        self.clock = _Clock()
        self.driver = _Driver(never_began=never_began)
        self.ledger = Ledger.open(folder)
        self.fence = Fence(folder, self.clock.now_ms)
        self.fence.renew(self.clock.ms, 60_000)
        outbox, spans = Outbox(self.ledger), Spans()
        reporting = Reporting(self.ledger, outbox, self.clock, prefix="a.i", spans=spans)
        bare = BareDriver(self.fence, self.clock.now_ms)
        self.executor = Executor(
            Parts(self.ledger, outbox, self.fence, self.driver, bare, self.clock, reporting, spans)
        )
        self.executor.recover()
        self.executor.begin_session("s1")

    async def give(self, *items: Command | Wanted | Received) -> None:
        await self.executor.carry_out(
            [
                Received(item, "s1", self.clock.ms) if isinstance(item, Command) else item
                for item in items
            ]
        )

    def see(self, key: Key, state: State, **fields: object) -> None:
        self.driver.tell(Event(key, state, **fields))

    def answers(self) -> list[tuple[str, Kind, str]]:
        reports = self.ledger.unacknowledged.values()
        return [(r.command_id, r.kind, r.reason) for r in reports]

    def close(self) -> None:
        self.ledger.close()
        self.fence.close()


@pytest.fixture
def world(tmp_path: Path):
    made = _World(tmp_path)
    yield made
    made.close()


A, B = Key("a", 1, 0), Key("b", 1, 0)
START = Command("c1", Verb.START, "pool/p", 5, "s1", A, launch=Launch(("true",), grace_ms=700))


def _next(verb: Verb, id_: str, key: Key = A, **fields) -> Command:
    return replace(START, id=id_, verb=verb, key=key, launch=None, **fields)


async def test_commands_of_a_group_are_enacted_in_order(world: _World) -> None:
    await world.give(
        START,
        _next(Verb.SUSPEND, "c2"),
        replace(START, id="c3", key=B),
        _next(Verb.RESUME, "c4"),
        _next(Verb.STOP, "c5", grace_ms=50, reason="TIME_OVER"),
    )

    assert world.driver.told == [
        ("start", A),
        ("suspend", A),
        ("start", B),
        ("resume", A),
        ("stop 50 TIME_OVER", A),
    ]
    assert world.answers() == []


async def test_each_command_is_answered_by_what_came_of_it(world: _World) -> None:
    await world.give(START, _next(Verb.SUSPEND, "c2"), _next(Verb.RESUME, "c3"))
    await world.give(_next(Verb.STOP, "c4"), _next(Verb.SUSPEND, "c5"))
    world.see(A, State.RUNNING)
    world.see(A, State.SUSPENDED)
    world.see(A, State.RUNNING)
    world.see(A, State.ENDED, exit_code=143, reason="STOPPED")
    world.see(A, State.ENDED, exit_code=143, reason="STOPPED")

    assert world.driver.told[-2:] == [("stop 700 ", A), ("suspend", A)]
    assert world.answers() == [
        ("c1", Kind.STARTED, ""),
        ("c2", Kind.SUSPENDED, ""),
        ("c3", Kind.RESUMED, ""),
        ("c4", Kind.ENDED, "STOPPED"),
        ("c5", Kind.REFUSED, "ALLOCATION_ENDED"),
    ]


async def test_what_a_stream_left_when_it_ended_is_void(world: _World) -> None:
    await world.give(Received(START, "s0", world.clock.ms), Wanted((), "s0"))

    assert world.driver.told == []
    assert world.answers() == []
    # It comes again on the present stream, and then it counts.
    await world.give(START)
    assert world.driver.told == [("start", A)]


async def test_epochs_only_grow(world: _World) -> None:
    await world.give(START, replace(START, id="c2", key=B, epoch=4))
    await world.give(replace(START, id="c3", key=B, epoch=1, scope="pool/q"))

    assert world.driver.told == [("start", A), ("start", B)]
    assert world.answers() == [("c2", Kind.REFUSED, "STALE_EPOCH")]
    assert world.ledger.epochs == {"pool/p": 5, "pool/q": 1}


async def test_what_was_refused_is_judged_anew_but_a_start(world: _World) -> None:
    """A stop that came under an epoch too old is repeated by the present leader, as it is."""
    await world.give(START)
    world.see(A, State.RUNNING)
    stop = _next(Verb.STOP, "c2", reason="TIME_OVER", grace_ms=50)
    other = replace(START, id="c3", key=B)
    await world.give(replace(stop, epoch=4), replace(other, epoch=4))
    assert world.answers()[-2:] == [
        ("c2", Kind.REFUSED, "STALE_EPOCH"),
        ("c3", Kind.REFUSED, "STALE_EPOCH"),
    ]

    await world.give(replace(stop, epoch=6), replace(other, epoch=6))

    assert world.driver.told == [("start", A), ("stop 50 TIME_OVER", A)]
    world.see(A, State.ENDED, exit_code=143, reason="STOPPED")
    assert world.answers()[-1] == ("c2", Kind.ENDED, "STOPPED")


async def test_the_span_counts_from_receipt(world: _World) -> None:
    received = Received(replace(START, valid_ms=100), "s1", world.clock.ms)
    world.clock.ms += 100
    await world.give(received)
    late = Received(replace(START, id="c2", key=B, valid_ms=100), "s1", world.clock.ms)
    world.clock.ms += 101
    await world.give(late)

    assert world.driver.told == [("start", A)]
    assert world.answers() == [("c2", Kind.REFUSED, "EXPIRED")]


async def test_a_start_that_a_crash_cut_off_begins_when_it_comes_again(tmp_path: Path) -> None:
    first = _World(tmp_path)
    first.driver.fails = False
    await first.give(START)
    first.close()  # crashed after the journal, before the guardian

    second = _World(tmp_path, never_began=frozenset({A}))
    assert second.executor.observed() == []
    await second.give(Wanted((Observed(A, State.STARTING),), "s1"), START, START)
    assert second.driver.told == [("start", A)]
    second.see(A, State.RUNNING)
    assert second.answers() == [("c1", Kind.STARTED, "")]
    second.close()


async def test_a_start_that_a_crash_cut_off_is_over_when_not_wanted(tmp_path: Path) -> None:
    first = _World(tmp_path)
    await first.give(START)
    first.close()

    second = _World(tmp_path, never_began=frozenset({A}))
    await second.give(Wanted((), "s1"), START)
    assert second.driver.told == []
    assert second.answers() == [("c1", Kind.ENDED, "NOT_WANTED")]
    second.close()


async def test_what_was_accepted_and_unanswered_is_enacted_again_after_a_crash(
    tmp_path: Path,
) -> None:
    first = _World(tmp_path)
    await first.give(START)
    first.see(A, State.RUNNING)
    await first.give(_next(Verb.SUSPEND, "c2"), _next(Verb.STOP, "c3"))
    first.close()

    second = _World(tmp_path)
    assert second.driver.told == [("suspend", A), ("stop 700 REPEATED", A)]
    second.close()


async def test_a_start_that_the_machine_refuses_is_a_refusal(world: _World) -> None:
    world.driver.fails = True
    await world.give(START)

    assert world.answers() == [("c1", Kind.REFUSED, "START_FAILED")]
    assert world.ledger.living() == []


async def test_work_that_ended_unseen_is_reported_as_begun_and_ended(world: _World) -> None:
    await world.give(START)
    world.see(A, State.ENDED, exit_code=0, reason="EXITED")

    assert world.answers() == [("c1", Kind.STARTED, ""), ("", Kind.ENDED, "EXITED")]


async def test_work_that_never_began_is_a_refused_start(world: _World) -> None:
    await world.give(START, _next(Verb.STOP, "c2"))
    world.see(A, State.ENDED, reason="EXPIRED")

    assert world.answers() == [("c1", Kind.REFUSED, "EXPIRED"), ("c2", Kind.ENDED, "NOT_STARTED")]


async def test_a_refused_start_may_be_tried_again_by_another_command(world: _World) -> None:
    await world.give(START)
    world.see(A, State.ENDED, reason="EXPIRED")
    await world.give(replace(START, id="c2"))
    world.see(A, State.RUNNING)

    assert world.driver.told == [("start", A), ("start", A)]
    assert world.answers() == [("c1", Kind.REFUSED, "EXPIRED"), ("c2", Kind.STARTED, "")]


async def test_an_agent_that_ends_begins_nothing_more(world: _World) -> None:
    await world.give(START)
    world.executor.stop_all("AGENT_STOPS")
    await world.give(replace(START, id="c2", key=B))

    assert world.driver.told == [("start", A), ("stop 700 AGENT_STOPS", A)]
    assert world.answers() == [("c2", Kind.REFUSED, "AGENT_STOPS")]


async def test_bare_capacity_is_over_when_contact_comes_back_too_late(tmp_path: Path) -> None:
    world = _World(tmp_path)
    bare = replace(START, launch=Launch())
    kept = replace(START, id="c2", key=B, launch=Launch(keep_on_loss=True))
    await world.give(bare, kept)
    world.clock.ms += 60_001
    world.fence.renew(world.clock.ms, 60_000)

    assert world.answers() == [
        ("c1", Kind.STARTED, ""),
        ("c2", Kind.STARTED, ""),
        ("", Kind.ENDED, "FENCED"),
    ]
    assert [each.key for each in world.ledger.living()] == [B]
    world.close()
