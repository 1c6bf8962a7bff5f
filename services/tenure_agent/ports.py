"""What the executor needs of the outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tenure_agent.work import Event, Key, Launch

Listener = Callable[[Event], None]


class Driver(Protocol):
    """Enacts allocations. Calls return at once; what comes of them arrives as events, in order.

    Each `start` that returns is followed by an event RUNNING or ENDED; each `suspend` and `resume`
    of a living allocation by an event with its state, each `stop` by ENDED. For allocations that
    have ended nothing happens.
    """

    @property
    def suspended_keeps(self) -> tuple[str, ...]:
        """Kinds of resources that a suspended allocation goes on to occupy."""
        ...

    def listen(self, listener: Listener) -> None:
        """Send events to `listener` from now on, from the event loop."""
        ...

    def start(self, key: Key, launch: Launch, *, before_ms: int, traceparent: str) -> None:
        """Start work unless the boot clock has passed `before_ms`.

        Raises OSError; then no event follows.
        """
        ...

    def suspend(self, key: Key) -> None:
        """Stop its processes where they are."""
        ...

    def resume(self, key: Key) -> None:
        """Let them go on."""
        ...

    def stop(self, key: Key, *, grace_ms: int, reason: str) -> None:
        """End it: asked first, killed after `grace_ms`."""
        ...

    def recover(self, keys: Mapping[Key, bool]) -> frozenset[Key]:
        """Find again what an earlier process of this agent started; to be called once, at start.

        Each key comes with whether it outlives a loss of contact. Returns the keys of which nothing
        was ever begun; for each of the others an event follows with its true state.
        """
        ...
