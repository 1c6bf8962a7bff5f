"""Refuses calls early while a server is behind with those that it has.

Decides by age, not by number: calls that are under way take long only when there are too many for
what they need, be that much or little. Unless there are few, a new call is refused while the
oldest one has been under way for `AGE_S`; so what is accepted is answered in a time near that, and
a refusal costs little, for the request is not even decoded. Calls of services and agents and of
tools without a key are not refused; calls that wait by their nature do not count.

A refusal still costs a few hundred microseconds of the event loop, which takes up one call a turn.
When calls come faster than that, they wait in gRPC's core, unseen from here, until they are too old
to be of use to anybody. So that queue is kept short (`WAITING_MAX`): what comes beyond it is
dropped by the core, without a word of ours; callers see CANCELLED.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any, Final

AGE_S: Final = 1.0
FEW: Final = 32
"""So many calls may be under way, however long they take."""
RETRY_AFTER_MS: Final = 1_000
WAITING_MAX: Final = 128
"""So many calls may wait to be taken up before some are dropped."""
OVERLOADED: Final = "OVERLOADED"
"""Why a call is refused while the server is behind."""
_WAITING: Final = re.compile(r".*/Wait\w*")


def takes_its_time(method: str) -> bool:
    """Say whether a call takes long because it waits for something to happen."""
    return _WAITING.fullmatch(method) is not None


class Load:
    """The calls of one server that are under way."""

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._since: dict[object, float] = {}

    def note(self, task: asyncio.Task[Any] | None) -> None:
        """Note that a call begins, which is over with the task that serves it."""
        if task is not None:
            self._since[task] = self._monotonic_s()
            task.add_done_callback(self._since.pop)

    def is_behind(self) -> bool:
        """Say whether new calls are to be refused. O(1): the oldest stands first."""
        if len(self._since) < FEW:
            return False
        return self._monotonic_s() - next(iter(self._since.values())) > AGE_S
