"""The time that is left for the call being served, passed on to every call made for it.

gRPC does not pass deadlines on by itself. The server's edge stores the incoming one in a context
variable (tasks started for the call inherit it) and the client takes the smaller of it and its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float | None] = ContextVar("tenure_deadline", default=None)


def enter(remaining_s: float | None) -> None:
    """Set the deadline of the present task from the time left, None for without end."""
    _deadline.set(None if remaining_s is None else time.monotonic() + remaining_s)


def remaining_s() -> float | None:
    """Return the seconds left for the call being served (0 when past), None when without end."""
    deadline = _deadline.get()
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def clamp_s(wanted_s: float | None) -> float | None:
    """Return the smaller of `wanted_s` and the time left; None when neither sets a limit."""
    left = remaining_s()
    if left is None or wanted_s is None:
        return wanted_s if left is None else left
    return min(left, wanted_s)


@contextmanager
def detached() -> Iterator[None]:
    """Run a block without the call's deadline, for work that must outlive the call."""
    token = _deadline.set(None)
    try:
        yield
    finally:
        _deadline.reset(token)
