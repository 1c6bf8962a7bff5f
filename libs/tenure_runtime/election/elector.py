"""The port through which a replica becomes the one leader of a scope, and finds the others'.

Decides what leadership means to its user: a token, a deadline that needs nobody's answer, and word
of its loss. Leadership alone never makes a write safe: a leader takes its epoch from slottable
after it has won and sends that with every write, where the database compares it. The adapters are
`etcd` (clusters), `row` (embedded, a row in PostgreSQL) and `fixed` (tests, one process).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

_SCOPE: Final = re.compile(r"[a-z]+/[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a scope: the value it published (its address) and its token."""

    value: str
    token: int


class Leadership(Protocol):
    """A won election. It ends once, and then for good: by `resign`, by loss, or by its deadline."""

    @property
    def scope(self) -> str:
        """Return the scope that is led."""
        ...

    @property
    def token(self) -> int:
        """Return a number that grows with each leader of the scope while the store is not wiped."""
        ...

    @property
    def lost(self) -> asyncio.Event:
        """Return the event that is set when leadership has ended, whatever the cause.

        It may lag behind `valid` by as long as this process was paused.
        """
        ...

    def valid(self) -> bool:
        """Say whether nobody else can lead by the store's rules at this moment.

        Asks nobody and never waits: true until the local deadline, which is the moment before the
        last answered renewal was sent, plus the time to live, on a clock that counts suspended
        time. So a process that was paused for longer knows with its first look.
        """
        ...

    async def resign(self) -> None:
        """End leadership now and let the next candidate win.

        Idempotent, and no error when the store is away: then the time to live does it.
        """
        ...


class Elector(Protocol):
    """A replica's part in any number of elections, one for each scope."""

    async def campaign(self, scope: str, value: str) -> Leadership:
        """Wait until this replica leads `scope`, publishing `value`, and return the leadership.

        Survives restarts of the store. Cancelling withdraws the candidate. Raises ValueError for a
        scope not of the form kind/name, and WrongState ALREADY_CANDIDATE if this elector already
        runs for the scope or leads it.
        """
        ...

    async def leader(self, scope: str) -> Leader | None:
        """Return the present leader, or None. Raises Unavailable if the store does not answer."""
        ...

    def observe(self, scope: str) -> AsyncIterator[Leader | None]:
        """Yield the present leader at once and then each change; None while nobody leads."""
        ...

    async def close(self) -> None:
        """Resign everything and let go of the store."""
        ...


def check_scope(scope: str) -> None:
    """Raise ValueError unless `scope` is `kind/name`, e.g. `pool/gpu`.

    One slash only: with more, the keys of one scope would lie below another's.
    """
    if not _SCOPE.fullmatch(scope):
        raise ValueError(f"a scope is kind/name with a plain name, not {scope!r}")
