"""A node's hardware: the work that runs there, its guardians, and the disk that the agent writes.

All of it outlives the agent's process; a reboot ends the work and keeps the disk. A guardian ends
its work when the deadline on the shared fence file has passed, whether the agent lives or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.simulation.world import Host, World
from tests.support.virtual_loop import PROCESS, outside

from tenure_agent.fence import Fence
from tenure_agent.journal import Record, decode, encode
from tenure_agent.ports import Listener
from tenure_agent.work import Event, Key, Launch, State

LAUNCH_S: Final = (0.001, 0.08)
FLUSH_S: Final = (0.0002, 0.004)
HEAR_S: Final = (0.0005, 0.01)
KILLED: Final = 137
TERMINATED: Final = 143


@dataclass
class Run:
    """One run of work on a node, as it truly is."""

    key: Key
    node: str
    command: tuple[str, ...]
    before_ms: int
    keep_on_loss: bool
    epoch: int = 0
    state: State = State.STARTING
    began_ms: int | None = None
    ended_ms: int | None = None
    run_ms: int = 0
    resumed_ms: int = 0
    exit_code: int | None = None
    reason: str = "EXITED"
    message: str = ""
    kill_at_ms: int | None = None
    ends_from_sleep: bool = False
    looks: Any = None

    @property
    def length_ms(self) -> int:
        """Return for how long the work runs by itself."""
        return int(self.command[1])

    @property
    def own_code(self) -> int:
        """Return the exit code that it gives itself."""
        return int(self.command[2])

    @property
    def is_stubborn(self) -> bool:
        """Say whether it ignores being asked to end."""
        return self.command[3] == "stubborn"

    def ran_ms(self, now_ms: int) -> int:
        """Return how long it has run."""
        return self.run_ms + (now_ms - self.resumed_ms if self.state is State.RUNNING else 0)


@dataclass
class Disk:
    """What is durable on a node."""

    journal: bytes = b""
    incarnation: str = ""
    fence_ms: int = 0
    rebooted: bool = False


class Node:
    """One machine."""

    def __init__(self, world: World, host: Host) -> None:
        self.world = world
        self.host = host
        self.boot = host.clock.boot()
        self.disk = Disk()
        self.runs: dict[Key, Run] = {}
        self.history: list[Run] = []
        self.listener: Callable[[Event], None] | None = None
        self.on_change: Callable[[Run], None] = lambda _run: None

    # The truth about work.

    def begin(self, run: Run) -> None:
        """Have a guardian begin work soon."""
        self.runs[run.key] = run
        delay_s = self.world.rng("launch").uniform(*LAUNCH_S)
        self.world.loop.call_later(delay_s, self._launch, run, context=outside())

    def _launch(self, run: Run) -> None:
        if self.runs.get(run.key) is not run or run.state is not State.STARTING:
            return
        now_ms = self.boot.now_ms()
        if now_ms > run.before_ms:
            self._never_began(run, "EXPIRED")
        elif not run.keep_on_loss and now_ms >= self.disk.fence_ms:
            self._never_began(run, "FENCED")
        else:
            run.state, run.began_ms, run.resumed_ms = State.RUNNING, now_ms, now_ms
            self.history.append(run)
            self._changed(run, "begins")
            self._tell(run)
            self._look(run)

    def _never_began(self, run: Run, reason: str) -> None:
        run.state, run.reason = State.ENDED, reason
        self._tell(run)

    def _changed(self, run: Run, what: str) -> None:
        lease, attempt, rank = run.key
        self.world.say(f"work       {lease}.{attempt}.{rank} on {run.node} {what}")
        self.world.step()
        self.on_change(run)

    def _look(self, run: Run) -> None:
        """Keep the deadlines of a run, and come back when the next one is due."""
        if run.looks is not None:
            run.looks.cancel()
        if run.state is State.ENDED or self.runs.get(run.key) is not run:
            return
        now_ms = self.boot.now_ms()
        due: list[int] = []
        if not run.keep_on_loss:
            if now_ms >= self.disk.fence_ms:
                self.end(run, KILLED, "FENCED", "Out of contact for too long.")
                return
            due.append(self.disk.fence_ms)
        if run.kill_at_ms is not None:
            if now_ms >= run.kill_at_ms:
                self.end(run, KILLED)
                return
            due.append(run.kill_at_ms)
        if run.state is State.RUNNING:
            done_ms = now_ms + run.length_ms - run.ran_ms(now_ms)
            if now_ms >= done_ms:
                self.end(run, run.own_code)
                return
            due.append(done_ms)
        if due:
            wait_s = max(1, min(due) - now_ms) / 1_000
            run.looks = self.world.loop.call_later(wait_s, self._look, run, context=outside())

    def end(self, run: Run, code: int, reason: str = "", message: str = "") -> None:
        """End a run now."""
        now_ms = self.boot.now_ms()
        run.run_ms = run.ran_ms(now_ms)
        run.state, run.exit_code, run.ended_ms = State.ENDED, code, now_ms
        run.reason, run.message = reason or run.reason, message or run.message
        self._changed(run, f"ends with {code} ({run.reason})")
        self._tell(run)

    def suspend(self, run: Run) -> None:
        """Stop its processes where they are."""
        if run.state is State.RUNNING:
            run.run_ms, run.state = run.ran_ms(self.boot.now_ms()), State.SUSPENDED
            self._changed(run, "is suspended")
        self._tell(run)
        self._look(run)

    def resume(self, run: Run) -> None:
        """Let its processes go on."""
        if run.state is State.SUSPENDED:
            run.state, run.resumed_ms = State.RUNNING, self.boot.now_ms()
            self._changed(run, "is resumed")
        self._tell(run)
        self._look(run)

    def stop(self, run: Run, grace_ms: int, reason: str) -> None:
        """Ask it to end, and end it after the grace."""
        kill_at_ms = self.boot.now_ms() + grace_ms
        if run.kill_at_ms is None:
            run.kill_at_ms, run.reason, run.message = kill_at_ms, "STOPPED", reason
            if run.state is State.SUSPENDED:
                run.ends_from_sleep = True
                run.state, run.resumed_ms = State.RUNNING, self.boot.now_ms()
                self._changed(run, "is resumed")
            if not run.is_stubborn and run.state is State.RUNNING:
                self.end(run, TERMINATED)
                return
        run.kill_at_ms = min(kill_at_ms, run.kill_at_ms)
        self._look(run)

    def reboot(self) -> None:
        """End all work at once; nothing but the disk is left."""
        for run in list(self.runs.values()):
            if run.state not in (State.ENDED, State.STARTING):
                self.listener = None
                self.end(run, KILLED, "INTERRUPTED", "The machine went down.")
            elif run.state is State.STARTING:
                # Whether it had begun cannot be told any more.
                run.state, run.exit_code, run.reason = State.ENDED, KILLED, "INTERRUPTED"
        self.disk.rebooted, self.disk.fence_ms = True, 0

    def wipe(self) -> None:
        """Replace the disk by an empty one (the machine went down before)."""
        self.runs.clear()
        self.disk = Disk()

    def event(self, run: Run) -> Event:
        """Return what a driver is told of a run."""
        run_ms = run.ran_ms(self.boot.now_ms())
        if run.state is State.ENDED:
            return Event(run.key, run.state, run_ms, run.exit_code, run.reason, run.message)
        return Event(run.key, run.state, run_ms)

    def _tell(self, run: Run) -> None:
        if self.listener is not None:
            self.listener(self.event(run))

    def living(self) -> list[Run]:
        """Return what runs or is suspended here now."""
        return [
            each for each in self.runs.values() if each.state in (State.RUNNING, State.SUSPENDED)
        ]


class SimDriver:
    """The agent's way to the guardians (`tenure_agent.ports.Driver`)."""

    suspended_keeps: tuple[str, ...] = ("memory",)

    def __init__(self, node: Node) -> None:
        self._node = node
        self._process = PROCESS.get()
        self._tell: Listener = lambda _event: None
        self._heard_at = 0.0
        node.listener = self._hear

    def listen(self, listener: Listener) -> None:
        """Send events to `listener`."""
        self._tell = listener

    def _hear(self, event: Event) -> None:
        """Pass an event on, in order, to the process that listens."""
        process, world = self._process, self._node.world
        assert process is not None
        if not process.alive:
            return
        at = max(self._heard_at + 1e-6, world.loop.time() + world.rng("hear").uniform(*HEAR_S))
        self._heard_at = at
        world.loop.call_at(at, self._pass_on, event, context=process.context())

    def _pass_on(self, event: Event) -> None:
        if self._process is not None and self._process.alive:
            if event.state is State.ENDED and event.exit_code is None:
                self._node.runs.pop(event.key, None)
            self._tell(event)

    def start(self, key: Key, launch: Launch, *, before_ms: int, traceparent: str) -> None:
        """Have work begun."""
        self._check()
        if key in self._node.runs:
            raise FileExistsError(17, "its folder exists")
        run = Run(key, self._node.host.name, launch.command, before_ms, launch.keep_on_loss)
        self._node.begin(run)

    def suspend(self, key: Key) -> None:
        """Have it stopped where it is."""
        self._do(key, self._node.suspend)

    def resume(self, key: Key) -> None:
        """Have it go on."""
        self._do(key, self._node.resume)

    def stop(self, key: Key, *, grace_ms: int, reason: str) -> None:
        """Have it ended."""
        self._do(key, lambda run: self._node.stop(run, grace_ms, reason))

    def _do(self, key: Key, act: Callable[[Run], None]) -> None:
        self._check()
        run = self._node.runs.get(key)
        if run is None or run.state is State.ENDED:
            return
        if run.state is State.STARTING:
            # It hears what it is told once it runs.
            loop = self._node.world.loop
            loop.call_later(0.09, self._do_later, key, act, context=outside())
            return
        act(run)

    def _do_later(self, key: Key, act: Callable[[Run], None]) -> None:
        run = self._node.runs.get(key)
        if run is not None and run.state in (State.RUNNING, State.SUSPENDED):
            act(run)

    def recover(self, keys: Mapping[Key, bool]) -> frozenset[Key]:
        """Find the guardians again."""
        unbegun = set()
        for key in keys:
            run = self._node.runs.get(key)
            if self._node.disk.rebooted:
                end = run if run is not None and run.exit_code is not None else None
                event = (
                    self._node.event(end)
                    if end
                    else Event(key, State.ENDED, 0, KILLED, "INTERRUPTED", "The machine went down.")
                )
                self._hear(event)
            elif run is None:
                unbegun.add(key)
            elif run.state is not State.STARTING:
                self._hear(self._node.event(run))
        return frozenset(unbegun)

    def _check(self) -> None:
        if self._process is not None:
            self._process.check()


class SimJournal:
    """The agent's journal on a simulated disk: what was not flushed is lost, a tail may be torn."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._process = PROCESS.get()
        self._waiting = bytearray()
        self._appended = 0
        self._durable = 0
        self._flush = asyncio.Lock()

    @classmethod
    def open(cls, node: Node) -> tuple[SimJournal, list[Record]]:
        """Open what is there; a torn tail is cut off."""
        records, good = decode(node.disk.journal)
        node.disk.journal = node.disk.journal[:good]
        return cls(node), records

    @property
    def size_bytes(self) -> int:
        """Return the size with what waits."""
        return len(self._node.disk.journal) + len(self._waiting)

    def append(self, record: Record) -> None:
        """Add a record."""
        self._waiting += encode(record)
        self._appended += 1

    async def durable(self) -> None:
        """Return when everything appended so far is on disk."""
        wanted, world = self._appended, self._node.world
        while self._durable < wanted:
            async with self._flush:
                if self._durable >= wanted:
                    return
                content, upto = bytes(self._waiting), self._appended
                self._waiting.clear()
                await self._write(content)
                self._durable = upto
        del world

    async def _write(self, content: bytes) -> None:
        world, process = self._node.world, self._process
        assert process is not None
        disk = self._node.disk
        await asyncio.sleep(world.rng("flush").uniform(*FLUSH_S))
        process.check()
        if world.chance("doom", world.rates.doom):
            kept = world.rng("torn").randrange(len(content) + 1)
            disk.journal += content[:kept]
            world.say(f"CRASH      in a flush, {kept} of {len(content)} bytes are on disk")
            process.kill()
            process.check()
        disk.journal += content

    async def replace(self, statement: Callable[[], Iterable[Record]]) -> None:
        """Begin a new generation."""
        async with self._flush:
            content, upto = b"".join(encode(record) for record in statement()), self._appended
            self._waiting.clear()
            await asyncio.sleep(self._node.world.rng("flush").uniform(*FLUSH_S))
            if self._process is not None:
                self._process.check()
            self._node.disk.journal = content
            self._durable = upto

    def close(self) -> None:
        """Nothing is held open."""


@dataclass
class _FenceOnDisk:
    disk: Disk
    on_renewal: list[Callable[[], None]] = field(default_factory=list)

    def renew(self, deadline_ms: int) -> None:
        self.disk.fence_ms = max(self.disk.fence_ms, deadline_ms)

    def close(self) -> None:
        """Nothing is held open."""


class SimFence(Fence):
    """The real rules of the fence over the simulated file."""

    def __init__(self, node: Node) -> None:
        self._process = PROCESS.get()
        self.rebooted = node.disk.rebooted
        self._file: Any = _FenceOnDisk(node.disk)
        self._deadline_ms = node.disk.fence_ms
        self._now_ms = node.boot.now_ms
        self._renewed = asyncio.Event()
        self._on_lapse = []

    def renew(self, sent_ms: int, fence_ms: int) -> None:
        """See `Fence`; a dead process writes nothing."""
        if self._process is not None:
            self._process.check()
        super().renew(sent_ms, fence_ms)
