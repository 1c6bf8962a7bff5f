"""Runs Python functions under leases, as `concurrent.futures` does in processes.

Decides how a call travels. Without a folder: the call in the lease's environment (a pickle of at
most 24 KiB), the outcome on its output, which only operators may read today. With a folder that
this process and the nodes share: both as files there. Limits that come with pickle: the function is
found by its name on the node, so its module must be importable there (for a script's own functions,
the same file under the same path), with the same Python and Tenure installed.
"""

from __future__ import annotations

import asyncio
import base64
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, Unpack

from tenure.client.async_lease import AsyncLease
from tenure.client.blocking import Plane
from tenure.client.errors import LeaseEnded
from tenure.client.remote_call import BEGIN, CALL, CALL_FILE, END, Call, Outcome
from tenure.client.wanted import Wanted
from tenure_runtime.ids import RandomIds

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
CALL_BYTES_MAX: Final = 24 * 1024
"""An environment variable holds 32 KiB, and base64 makes four bytes of three."""


class RemoteTraceback(Exception):
    """The cause of an exception that was raised on a node: its traceback there, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class LeaseExecutor(Executor):
    """Each call gets a lease of its own, as `wanted` says, and ends with it.

    `with LeaseExecutor(plane, cpu=2, duration="5m") as executor: executor.submit(f, 1).result()`.
    A future raises what the function raised, or LeaseEnded when its lease ended without an outcome
    (time over, node lost). Cancelling a future gives its lease back. `python` is the interpreter on
    the nodes, by default this one.
    """

    def __init__(
        self,
        plane: Plane,
        *,
        folder: Path | str | None = None,
        python: str = sys.executable,
        **wanted: Unpack[Wanted],
    ) -> None:
        if "command" in wanted:
            raise TypeError("the executor itself says which command runs")
        self._plane = plane
        self._folder = Path(folder).absolute() if folder is not None else None
        self._python = python
        self._wanted = wanted
        self._futures: set[Future[Any]] = set()
        self._shut = False

    def submit(
        self,
        fn: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Future[Result]:
        """Ask for a lease that runs `fn(*args, **kwargs)`; return at once.

        Raises ValueError for a call that is too large or whose function has no name on the node.
        """
        if self._shut:
            raise RuntimeError("the executor is shut down")
        call = pack(fn, args, kwargs)
        if self._folder is None and len(call) > CALL_BYTES_MAX:
            raise ValueError(
                f"the pickled call has {len(call)} bytes, more than {CALL_BYTES_MAX}: give the "
                "executor a folder that it shares with the nodes"
            )
        future: Future[Result] = asyncio.run_coroutine_threadsafe(
            self._run(call), self._plane.thread.loop
        )
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing new; wait for what runs, or cancel it."""
        self._shut = True
        running = set(self._futures)
        if cancel_futures:
            for future in running:
                future.cancel()
        if wait:
            _wait_for(running)

    async def _run(self, call: bytes) -> Any:
        file = None if self._folder is None else self._folder / f"{RandomIds().short()}.call"
        try:
            if file is None:
                environment = {CALL: base64.b64encode(call).decode()}
            else:
                await asyncio.to_thread(file.write_bytes, call)
                environment = {CALL_FILE: str(file)}
            return await self._under_lease(environment, file)
        finally:
            if file is not None:
                for each in (file, file.with_suffix(".outcome"), file.with_suffix(".partial")):
                    each.unlink(missing_ok=True)

    async def _under_lease(self, environment: dict[str, str], file: Path | None) -> Any:
        wanted: Wanted = {
            **self._wanted,
            "command": [self._python, "-m", "tenure.client.remote_call"],
            "environment": {**self._wanted.get("environment", {}), **environment},
        }
        lease = await self._plane.asynchronous.submit(**wanted)
        try:
            info = await lease.wait()
        except asyncio.CancelledError:
            await asyncio.shield(lease.give_back())
            raise
        found = await _from_output(lease) if file is None else await _from_file(file)
        if found is None:
            raise LeaseEnded(info)
        return _value(found)


def pack(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Return a call as a pickle. Raises ValueError for what a node could not find or read."""
    main = None
    if getattr(function, "__module__", None) == "__main__":
        main = getattr(sys.modules["__main__"], "__file__", None)
        if main is None:
            raise ValueError("a function typed into a prompt has no file: put it into a module")
    try:
        pickled = pickle.dumps((function, args, kwargs))
    except Exception as error:
        raise ValueError(f"the call cannot be pickled: {error}") from error
    path = [str(Path(entry).absolute()) for entry in sys.path if entry]
    return pickle.dumps(Call(str(Path(main).absolute()) if main else None, path, pickled))


async def _from_output(lease: AsyncLease) -> Outcome | None:
    text = b"".join([part async for part in lease.output()])
    _, mark, rest = text.rpartition(BEGIN)
    length, _, body = rest.partition(b"\n")
    encoded, end, _ = body.partition(END)
    if not mark or not end:
        return None
    pickled = base64.b64decode(encoded)
    return _outcome(pickled) if len(pickled) == int(length) else None


async def _from_file(file: Path) -> Outcome | None:
    try:
        return _outcome(await asyncio.to_thread(file.with_suffix(".outcome").read_bytes))
    except FileNotFoundError:
        return None


def _outcome(pickled: bytes) -> Outcome:
    outcome = pickle.loads(pickled)  # noqa: S301 - our own lease's word
    assert isinstance(outcome, Outcome)
    return outcome


def _value(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error from RemoteTraceback(outcome.trace)
    return outcome.value


def _wait_for(futures: set[Future[Any]]) -> None:
    wait(futures)
