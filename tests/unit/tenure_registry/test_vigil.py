"""The vigil and the sessions on a simulated clock: losses, replicas, and answers to beats."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

import pytest

from tenure_core.agents.agent import Claim
from tenure_core.agents.loss import LossTiming
from tenure_core.agents.states import AgentState
from tenure_core.agents.work import Command, ReportKind, Slot, Verb
from tenure_core.errors import DomainError, Exhausted, Unavailable
from tenure_core.leases.lease import OnLoss
from tenure_core.resources import ResourceVector
from tenure_registry.convert import lost_report
from tenure_registry.sessions import HELLOS_MAX, LiveAgent, Sessions
from tenure_registry.store.memory import MemoryStore
from tenure_registry.values import Dispatch, LogRequest, Opened, Opening, Outgoing, StateChange
from tenure_registry.vigil import Vigil
from tenure_runtime.ids import RandomIds

TIMING = LossTiming(heartbeat_ms=1_000, fence_ms=6_000, loss_ms=10_000)
REPLICA_MS = 60_000


class SimulatedClock:
    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms


class Link:
    """An agent's end of a stream that only remembers."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.ended = ""

    def deliver(self, session: str, outgoing: Sequence[Outgoing]) -> None:
        self.sent += [f"{each.command.command_id}@{session}" for each in outgoing]

    def request_log(self, request: LogRequest) -> None:
        raise AssertionError("no logs here")

    def redirect(self, delay_ms: int) -> None:
        raise AssertionError("no redirects here")

    def end(self, error: DomainError) -> None:
        self.ended = error.reason


class Notices:
    def __init__(self) -> None:
        self.told: list[tuple[str, list[str]]] = []

    def tell(self, replica: str, agents: Collection[str]) -> None:
        self.told.append((replica, list(agents)))


Hook = Callable[[], Awaitable[None]]


class InterruptedStore(MemoryStore):
    """The memory store, with something else happening before or after its transactions."""

    before_loss: Hook | None = None
    around_hello: tuple[Hook, Hook] | None = None
    after_states: Hook | None = None

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(clock, lost_report, TIMING.loss_ms)
        self.states: list[AgentState] = []

    async def declare_lost(self, given: Mapping[str, str], replica: str) -> list[str]:
        if self.before_loss is not None:
            await self.before_loss()
        return await super().declare_lost(given, replica)

    async def open_session(self, opening: Opening) -> Opened:
        if self.around_hello is None:
            return await super().open_session(opening)
        before, after = self.around_hello
        await before()
        opened = await super().open_session(opening)
        await after()
        return opened

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        self.states.extend(change.state for change in changes)
        await super().change_states(changes)
        if self.after_states is not None:
            await self.after_states()


async def nothing() -> None:
    """Do nothing."""


async def database_away() -> None:
    """Fail as a database that is away."""
    raise Unavailable("DATABASE_UNAVAILABLE", "The database is away.")


class World:
    """Replicas over one store and one clock."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.store = InterruptedStore(self.clock)
        self.sessions: dict[str, Sessions] = {}
        self.vigils: dict[str, Vigil] = {}
        self.notices: dict[str, Notices] = {}

    async def replica(self, name: str) -> Sessions:
        self.notices[name] = Notices()
        ids = RandomIds(random.Random(len(self.sessions)))
        sessions = Sessions(self.store, self.notices[name], self.clock, ids, name, gap_ms=2_500)
        self.sessions[name] = sessions
        self.vigils[name] = Vigil(
            self.store, sessions, TIMING,
            clock=self.clock, wall=self.clock, replica_ms=REPLICA_MS,
        )  # fmt: skip
        await self.vigils[name].renew()
        return sessions

    async def join(
        self, agent: str, replica: str = "r1", incarnation: str = "d1"
    ) -> tuple[LiveAgent, Link, Opened]:
        link = Link()
        claim = Claim(agent, "main", incarnation, "0.1", ResourceVector({"cpu": 1_000}))
        sessions = self.sessions[replica]
        live, opened = await sessions.open(claim, frozenset(), link)
        sessions.started(live, opened)
        return live, link, opened

    async def run(
        self, span_ms: int, *, beating: Collection[LiveAgent] = (), only: str = ""
    ) -> list[str]:
        """Let time pass in half seconds; return whom the replicas lost, in order."""
        lost: list[str] = []
        for _ in range(span_ms // 500):
            self.clock.at_ms += 500
            for live in beating:
                for sessions in self.sessions.values():
                    if sessions.find(live.agent) is live:
                        sessions.beat(live, None)
            for name, vigil in self.vigils.items():
                if only in ("", name):
                    vigil.stay_awake()
                    lost += await vigil.run_once()
        return lost

    async def state(self, agent: str) -> AgentState:
        return (await self.store.get_agent(agent))[0].state


def start(agent: str, lease: str = "l1", epoch: int = 1) -> Command:
    return Command(
        f"{lease}.start", agent, Slot(lease, 1, 0), Verb.START, epoch, 60_000, OnLoss.STOP, b"", b""
    )


@pytest.fixture
async def world() -> World:
    world = World()
    await world.replica("r1")
    return world


async def test_a_state_that_may_have_been_stored_is_stored_again(world: World) -> None:
    """Suspected, says the database, whose answer was lost; the agent beats and is suspected on."""
    live, _, _ = await world.join("a")
    world.store.after_states = database_away
    with pytest.raises(Unavailable):
        await world.run(5_000)
    assert (live.state, await world.state("a")) == (AgentState.ALIVE, AgentState.SUSPECT)
    world.store.after_states = None
    await world.run(2_000, beating=[live])
    assert (live.state, await world.state("a")) == (AgentState.ALIVE, AgentState.ALIVE)


async def test_a_silent_agent_is_lost_and_its_work_reported(world: World) -> None:
    live, link, _ = await world.join("a")
    await world.store.dispatch(Dispatch("main", 1, (start("a"),)))
    assert await world.run(9_500) == []
    assert await world.state("a") is AgentState.SUSPECT
    assert await world.run(500) == ["a"]
    assert (await world.state("a"), link.ended) == (AgentState.LOST, "SESSION_LOST")
    reports, _ = await world.store.last_reports("main", None, 9)
    assert [(r.slot.lease, r.kind) for r in reports] == [("l1", ReportKind.LOST)]
    assert world.sessions["r1"].find("a") is None
    assert live.given_up


async def test_no_beat_is_answered_while_a_loss_is_stored(world: World) -> None:
    live, _, _ = await world.join("a")
    answers: list[bool] = []

    async def beat() -> None:
        answers.append(world.sessions["r1"].beat(live, None))

    world.store.before_loss = beat
    assert await world.run(10_000) == ["a"]
    assert answers == [False]


async def test_a_failed_loss_is_tried_again_and_ends_the_stream(world: World) -> None:
    live, link, _ = await world.join("a")
    world.store.before_loss = database_away
    with pytest.raises(Unavailable):
        await world.run(10_000)
    assert link.ended == "SESSION_LOST"
    world.sessions["r1"].closed(live)
    world.store.before_loss = None
    assert await world.run(500) == ["a"]


async def test_an_agent_that_stays_away_after_its_stream_ended_is_lost(world: World) -> None:
    live, _, _ = await world.join("a")
    world.sessions["r1"].closed(live)
    assert await world.run(10_000) == ["a"]


async def test_a_restarted_registry_gives_everyone_a_full_loss_time(world: World) -> None:
    await world.join("a")
    await world.run(9_000)
    del world.vigils["r1"]
    await world.replica("r1")
    assert await world.run(9_500) == []
    assert await world.run(500) == ["a"]


async def test_a_paused_registry_blames_nobody(world: World) -> None:
    live, _, _ = await world.join("a")
    world.clock.at_ms += 50_000
    assert await world.vigils["r1"].run_once() == ()
    assert await world.run(5_000, beating=[live]) == []
    assert await world.state("a") is AgentState.ALIVE


async def test_agents_of_a_replica_that_died_are_lost_by_another_in_the_end(world: World) -> None:
    await world.join("a", "r1")
    await world.replica("r2")
    # r1 is dead: it neither renews nor judges. r2 takes over after the replica's time.
    assert await world.run(REPLICA_MS, only="r2") == []
    assert await world.run(22_000, only="r2") == ["a"]


async def test_agents_that_reconnect_to_another_replica_are_never_lost(world: World) -> None:
    first, link, _ = await world.join("a", "r1")
    await world.replica("r2")
    second, _, opened = await world.join("a", "r2")
    assert opened.replica_before == "r1"
    assert world.notices["r2"].told == [("r1", ["a"])]
    await world.sessions["r1"].attend(["a"])
    assert link.ended == "SESSION_SUPERSEDED"
    assert world.sessions["r1"].find("a") is None
    assert await world.run(30_000, beating=[second]) == []
    assert first.session != second.session


async def test_a_notice_that_got_lost_costs_no_agent(world: World) -> None:
    await world.join("a", "r1")
    await world.replica("r2")
    second, _, _ = await world.join("a", "r2")
    # r1 never heard of it and finds the agent silent; the session is another by now.
    assert await world.run(30_000, beating=[second]) == []
    assert await world.state("a") is AgentState.ALIVE
    assert world.sessions["r1"].find("a") is None


async def test_a_stream_whose_session_is_no_longer_its_agents_ends_within_a_renewal(
    world: World,
) -> None:
    live, link, _ = await world.join("a", "r1")
    await world.replica("r2")
    await world.join("a", "r2")
    # r2's notice was lost; the older stream beats on.
    await world.run(REPLICA_MS // 6, beating=[live])
    assert link.ended == "SESSION_SUPERSEDED"


async def test_the_newer_session_of_a_replica_that_died_is_watched_here(world: World) -> None:
    live, link, _ = await world.join("a", "r1")
    await world.replica("r2")
    newer, _, _ = await world.join("a", "r2")
    # r2 dies before its notice is sent, and the agent never comes back; the old stream beats on.
    del world.vigils["r2"]
    assert await world.run(REPLICA_MS * 3, beating=[live]) == ["a"]
    assert link.ended == "SESSION_SUPERSEDED"
    assert newer.session != live.session


async def test_a_replica_out_of_contact_answers_no_beats_and_begins_anew(world: World) -> None:
    live, link, _ = await world.join("a")
    sessions = world.sessions["r1"]
    world.clock.at_ms += REPLICA_MS * 9 // 10 - 1
    assert sessions.beat(live, None)
    world.clock.at_ms += 1
    assert not sessions.beat(live, None)
    await world.vigils["r1"].run_once()
    assert link.ended == "REPLICA_LATE"
    again, _, _ = await world.join("a")
    assert sessions.beat(again, None)


async def test_agents_that_stay_away_after_their_replica_was_late_are_lost(world: World) -> None:
    live, _, _ = await world.join("a")
    world.sessions["r1"].closed(live)
    world.clock.at_ms += REPLICA_MS
    assert await world.run(9_500) == []
    assert await world.run(1_000) == ["a"]


async def test_what_is_dispatched_during_a_hello_is_sent_once_and_after_it(world: World) -> None:
    sessions, store = world.sessions["r1"], world.store
    await world.join("a")

    async def dispatch(lease: str) -> None:
        dispatched = await store.dispatch(Dispatch("main", 1, (start("a", lease),)))
        sessions.deliver(dispatched.deliveries)

    store.around_hello = (partial(dispatch, "before"), partial(dispatch, "after"))
    link = Link()
    claim = Claim("a", "main", "d1", "0.1", ResourceVector())
    live, opened = await sessions.open(claim, frozenset(), link)
    first = [each.command.command_id for each in sessions.started(live, opened)]
    assert first == ["before.start", "after.start"]
    assert link.sent == []
    again = await store.dispatch(Dispatch("main", 2, (start("a", "after", epoch=2),)))
    sessions.deliver([*again.deliveries, *again.deliveries])
    assert link.sent == [f"after.start@{live.session}"]


async def test_what_was_read_for_an_older_session_is_not_sent_in_a_newer_one(world: World) -> None:
    """The agent came back with a new disk meanwhile: the START would run a second time."""
    _, first, _ = await world.join("a")
    dispatched = await world.store.dispatch(Dispatch("main", 1, (start("a"),)))
    pending = await world.store.pending(["a"])
    world.sessions["r1"].deliver(pending)
    assert [each.split("@")[0] for each in first.sent] == ["l1.start"]
    _, second, opened = await world.join("a", incarnation="d2")
    assert opened.commands == ()
    world.sessions["r1"].deliver(dispatched.deliveries)
    world.sessions["r1"].deliver(pending)
    assert second.sent == []


async def test_a_hello_that_cannot_be_stored_leaves_the_agent_watched(world: World) -> None:
    live, _, _ = await world.join("a")
    world.store.around_hello = (database_away, nothing)
    with pytest.raises(Unavailable):
        await world.join("a")
    assert world.sessions["r1"].find("a") is live
    assert await world.run(10_000) == ["a"]


async def test_an_agent_that_flaps_stays_suspected_for_longer_each_time(world: World) -> None:
    live, _, _ = await world.join("a")
    waits = []
    for _ in range(4):
        await world.run(3_000)
        assert await world.state("a") is AgentState.SUSPECT
        waited_ms = 0
        while await world.state("a") is AgentState.SUSPECT:
            await world.run(500, beating=[live])
            waited_ms += 500
        waits.append(waited_ms)
    assert waits == [1_500, 2_500, 4_500, 8_500]
    # Steady for a minute: what was is forgotten.
    await world.run(66_000, beating=[live])
    await world.run(3_000)
    await world.run(1_500, beating=[live])
    assert await world.state("a") is AgentState.ALIVE


async def test_clones_that_supersede_one_another_are_slowed_down(world: World) -> None:
    for _ in range(HELLOS_MAX):
        live, _, _ = await world.join("a")
    with pytest.raises(Exhausted) as refused:
        await world.join("a")
    assert refused.value.reason == "FLOODING"
    assert world.sessions["r1"].find("a") is live
    world.clock.at_ms += 1_000
    await world.join("a")


async def test_states_go_along_the_table_even_when_rounds_are_far_apart(world: World) -> None:
    await world.join("a")
    vigil = world.vigils["r1"]
    for _ in range(5):
        world.clock.at_ms += 2_000
        vigil.stay_awake()
    assert await vigil.run_once() == ("a",)
    assert world.store.states == [AgentState.SUSPECT]
