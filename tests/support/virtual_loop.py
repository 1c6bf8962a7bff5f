"""An asyncio event loop on virtual time: it jumps to the next timer and never waits.

Code under test is unchanged: `asyncio.sleep`, `timeout`, `wait` and the rest work as usual. What
would make two runs differ is taken away: there is no wall clock, and sets of tasks have the order
in which the tasks were made. Every callback may belong to a process (the context variable
`PROCESS`), which can be paused, so that nothing of it runs, and killed.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

BEGIN_S: Final = 1_000.0
_TIMERS_CANCELLED_MAX: Final = 200


class Stuck(AssertionError):
    """Nothing is ready and no timer is set: the run would wait for ever."""


class Killed(asyncio.CancelledError):
    """What a killed process gets from anything that would have an effect outside of it."""


class Process:
    """Tasks that live and die together, like those of an operating system's process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[asyncio.Handle] = []
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.on_death: list[Callable[[], None]] = []

    def context(self) -> Context:
        """Return a fresh context in which everything belongs to this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run a coroutine as a task of this process."""
        return asyncio.get_running_loop().create_task(work, context=self.context())

    def check(self) -> None:
        """Raise Killed when the process is no more."""
        if not self.alive:
            raise Killed

    def pause(self) -> None:
        """Run nothing of it until it is resumed; time goes on."""
        self.paused = True

    def resume(self) -> None:
        """Run what has come due meanwhile, in its order."""
        self.paused = False
        held, self.held = self.held, []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.ready_again(held)

    def kill(self) -> None:
        """End it where it stands: whatever its tasks still do has no effect outside."""
        if not self.alive:
            return
        self.alive = False
        self.resume()
        for told in self.on_death:
            told()
        self._reap(0)

    def _reap(self, rounds: int) -> None:
        assert rounds < 100, f"{self.name} does not die: {list(self.tasks)}"
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            loop = asyncio.get_running_loop()
            loop.call_later(0.001, self._reap, rounds + 1, context=outside())


PROCESS: ContextVar[Process | None] = ContextVar("simulated_process", default=None)


def outside() -> Context:
    """Return a context that belongs to no process."""
    context = copy_context()
    context.run(PROCESS.set, None)
    return context


class OrderedTask(asyncio.Task[Any]):
    """A task whose place in sets does not depend on where in memory it lies."""

    _made = 0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        OrderedTask._made += 1
        self._number = OrderedTask._made
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


def _make_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    context: Context | None = None,
) -> asyncio.Task[Any]:
    task = OrderedTask(work, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. `callbacks` counts what was run."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_s = BEGIN_S
        self.callbacks = 0
        self.stepped: Callable[[], None] | None = None
        OrderedTask._made = 0
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._virtual_s

    def now_ms(self) -> int:
        """Return the virtual time in whole milliseconds."""
        return int(self._virtual_s * 1_000 + 1e-6)

    def ready_again(self, handles: list[asyncio.Handle]) -> None:
        """Run handles that were held back."""
        self._ready.extend(handles)

    def _run_once(self) -> None:
        self._forget_cancelled()
        scheduled = self._scheduled
        if not self._ready and not self._stopping:
            if not scheduled:
                raise Stuck("nothing is ready and no timer is set")
            self._virtual_s = max(self._virtual_s, scheduled[0]._when)
        while scheduled and scheduled[0]._when <= self._virtual_s:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            self._ready.append(handle)
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None and process.paused:
                process.held.append(handle)
                continue
            self.callbacks += 1
            handle._run()
            if self.stepped is not None:
                self.stepped()

    def _forget_cancelled(self) -> None:
        scheduled = self._scheduled
        if self._timer_cancelled_count > _TIMERS_CANCELLED_MAX:
            kept = [handle for handle in scheduled if not handle._cancelled]
            for handle in scheduled:
                if handle._cancelled:
                    handle._scheduled = False
            heapq.heapify(kept)
            self._scheduled[:] = kept
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0]._cancelled:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)

    def _process_events(self, event_list: object) -> None:
        """There are no files to look at."""

    def _write_to_self(self) -> None:
        """Nobody sleeps, so nobody is to be woken."""


def run_virtual(main: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run `main()` to its end on a new virtual loop.

    The collector of garbage is off meanwhile: it would close what lies about at moments that
    depend on everything else in this process.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main())
    finally:
        if collects:
            gc.enable()
