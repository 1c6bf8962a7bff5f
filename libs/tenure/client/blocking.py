"""The SDK without asyncio: the same calls, each waiting for its answer.

Decides nothing of its own: one thread a plane runs an event loop with an `AsyncPlane`, and calls
are handed to it. Calls may come from any number of threads. An interrupt (Ctrl-C) cancels the call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar, Unpack

from tenure.client.aio import AsyncPlane
from tenure.client.async_lease import AsyncLease, Explanation
from tenure.client.forecast import Forecast
from tenure.client.lease_info import LeaseInfo, LeaseTable
from tenure.client.spans import Span, When
from tenure.client.wanted import Wanted
from tenure.client.watching import Change
from tenure_core.leases.states import LeaseState

Result = TypeVar("Result")
_LAST_WORDS_S: Final = 10.0


class LoopThread:
    """An event loop in a thread of its own. Ends with `close`, or with the process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="tenure-client", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return what a coroutine returns, or raise what it raises."""
        assert threading.current_thread() is not self._thread, "a blocking call inside the loop"
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[Result, None]) -> Generator[Result, None, None]:
        """Yield what an asynchronous generator yields; it is closed with this one."""
        try:
            while True:
                try:
                    yield self.run(anext(items))
                except StopAsyncIteration:
                    return
        finally:
            # A generator may be left lying about until long after.
            if not self.loop.is_closed():
                self.run(items.aclose())

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Lease:
    """A lease; waits and errors are those of AsyncLease."""

    def __init__(self, thread: LoopThread, lease: AsyncLease) -> None:
        self._thread = thread
        self._lease = lease

    def __repr__(self) -> str:
        return repr(self._lease)

    def _repr_html_(self) -> str:
        return self.info._repr_html_()

    @property
    def id(self) -> str:
        """Return its id."""
        return self._lease.id

    @property
    def info(self) -> LeaseInfo:
        """Return how it was when it was last read."""
        return self._lease.info

    def refresh(self) -> LeaseInfo:
        """Read it anew."""
        return self._thread.run(self._lease.refresh())

    def wait(self, *states: LeaseState, within_s: float | None = None) -> LeaseInfo:
        """Wait until it is in one of `states` or has ended. Raises TimeoutError."""
        return self._thread.run(self._lease.wait(*states, within_s=within_s))

    def result(self, *, within_s: float | None = None) -> LeaseInfo:
        """Wait until it has ended. Raises LeaseEnded unless it ended as it should."""
        return self._thread.run(self._lease.result(within_s=within_s))

    def cancel(self, message: str = "") -> LeaseInfo:
        """Give it up; nothing happens when it has ended."""
        return self._thread.run(self._lease.cancel(message))

    def change(
        self,
        *,
        duration: Span | None = None,
        start: When | None = None,
        nodes: int | None = None,
        priority: int | None = None,
        only_if_unchanged: bool = True,
    ) -> LeaseInfo:
        """Ask for other terms. Raises Conflict ETAG_MISMATCH."""
        return self._thread.run(
            self._lease.change(
                duration=duration,
                start=start,
                nodes=nodes,
                priority=priority,
                only_if_unchanged=only_if_unchanged,
            )
        )

    def settled(self, *, within_s: float = 60.0) -> LeaseInfo:
        """Wait until a pending change is decided."""
        return self._thread.run(self._lease.settled(within_s=within_s))

    def explain(self) -> Explanation:
        """Say why it is where it is."""
        return self._thread.run(self._lease.explain())

    def output(self, rank: int = 0, *, follow: bool = False) -> Iterator[bytes]:
        """Yield what one slot of its last attempt printed; with `follow`, until the work ends."""
        return self._thread.iterate(self._lease.output(rank, follow=follow))


class Plane:
    """The services, as one caller; `with connect() as plane`."""

    def __init__(self, plane: AsyncPlane) -> None:
        self.thread = LoopThread()
        self.asynchronous = plane

    def __enter__(self) -> Plane:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what an interrupt left held, and close all connections."""
        self.thread.run(_others_end())
        self.thread.run(self.asynchronous.close())
        self.thread.close()

    def submit(self, *, request_id: str = "", **wanted: Unpack[Wanted]) -> Lease:
        """Ask for a lease and return it; it is created, not yet accepted. Raises Invalid."""
        return self._own(self.asynchronous.submit(request_id=request_id, **wanted))

    def check(self, **wanted: Unpack[Wanted]) -> LeaseInfo:
        """Return the lease that `submit` would make, without making it."""
        return self.thread.run(self.asynchronous.check(**wanted))

    def forecast(self, **wanted: Unpack[Wanted]) -> Forecast:
        """Say when such a lease would start, without making it."""
        return self.thread.run(self.asynchronous.forecast(**wanted))

    def lease(self, lease_id: str) -> Lease:
        """Return a lease that exists. Raises NotFound LEASE_NOT_FOUND."""
        return self._own(self.asynchronous.lease(lease_id))

    def leases(
        self,
        *,
        limit: int = 1_000,
        states: Iterable[LeaseState] = (),
        owner: str = "",
        project: str = "",
        pool: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> LeaseTable:
        """Return up to `limit` leases, newest first, that match every filter."""
        return self.thread.run(
            self.asynchronous.leases(
                limit=limit, states=states, owner=owner, project=project, pool=pool, labels=labels
            )
        )

    def token(self) -> str:
        """Return where the changes are now: a watch from there shows all that come after."""
        return self.thread.run(self.asynchronous.token())

    def watch(
        self,
        *,
        token: str = "",
        owner: str = "",
        pool: str = "",
        lease_id: str = "",
        relist: bool = False,
        patience_s: float | None = 60.0,
    ) -> Generator[Change, None, None]:
        """Yield every change after `token`, over any number of breaks. Raises WatchExpired.

        Without a token: all that come after this call.
        """
        token = token or self.token()
        return self.thread.iterate(
            self.asynchronous.watch(
                token=token,
                owner=owner,
                pool=pool,
                lease_id=lease_id,
                relist=relist,
                patience_s=patience_s,
            )
        )

    def confirm(self, *lease_ids: str) -> list[LeaseInfo]:
        """Take leases that were asked for with a hold: all, or none. Raises WrongState."""
        return self.thread.run(self.asynchronous.confirm(*lease_ids))

    @contextmanager
    def hold(self, *, within_s: float | None = None, **wanted: Unpack[Wanted]) -> Iterator[Lease]:
        """Hold a lease for the length of a block. Raises TimeoutError and LeaseEnded."""
        held = self.asynchronous.hold(within_s=within_s, **wanted)
        lease = Lease(self.thread, self.thread.run(held.__aenter__()))
        try:
            yield lease
        finally:
            self.thread.run(held.__aexit__(None, None, None))

    def _own(self, lease: Coroutine[Any, Any, AsyncLease]) -> Lease:
        return Lease(self.thread, self.thread.run(lease))


async def _others_end() -> None:
    """Wait a little for calls that were interrupted: they may be giving leases back."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=_LAST_WORDS_S)
