"""The client's side of tokens: exchanges a credential for a token and keeps a good one at hand.

Decides when to ask for the next: in the background when most of the lifetime is over, at the latest
when all of it is. Only spans of this machine's monotonic clock are used, so that a wrong wall clock
changes nothing. While the issuer is away the token at hand goes on to its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tenure_core.errors import DomainError, Unauthenticated

AHEAD: Final = 0.7
"""The part of a token's lifetime after which the next one is asked for."""
RETRY_S: Final = 5.0
_REFUSED: Final = frozenset({"TOKEN_EXPIRED", "TOKEN_INVALID"})


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token, and how long it lasts from when it was asked for."""

    text: str
    lifetime_s: float


class TokenSource:
    """The tokens of one credential, shared by all clients that call with it."""

    def __init__(
        self,
        issue: Callable[[], Awaitable[IssuedToken]],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issue = issue
        self._monotonic_s = monotonic_s
        self._token: IssuedToken | None = None
        self._since_s = 0.0
        self._tried_s = float("-inf")
        self._asking = asyncio.Lock()
        self._ahead: asyncio.Task[None] | None = None

    async def bearer(self) -> str:
        """Return a token that is good now. Raises as the call that issues one."""
        token = self._token
        age_s = self._monotonic_s() - self._since_s
        if token is None or age_s >= token.lifetime_s:
            return (await self._next(token)).text
        if age_s >= AHEAD * token.lifetime_s:
            self._ask_ahead(token)
        return token.text

    async def another(self, refused: str) -> str:
        """Return another token than one that a server has refused."""
        token = self._token
        if token is not None and token.text != refused:
            return token.text
        return (await self._next(token)).text

    def close(self) -> None:
        """Give up what is asked for in the background."""
        if self._ahead is not None:
            self._ahead.cancel()

    async def _next(self, before: IssuedToken | None) -> IssuedToken:
        async with self._asking:
            if self._token is not before and self._token is not None:
                return self._token
            asked_s = self._tried_s = self._monotonic_s()
            token = await self._issue()
            self._token, self._since_s = token, asked_s
            return token

    def _ask_ahead(self, before: IssuedToken) -> None:
        asking = self._ahead is not None and not self._ahead.done()
        if asking or self._monotonic_s() - self._tried_s < RETRY_S:
            return

        async def ask() -> None:
            try:
                await self._next(before)
            except DomainError:
                return  # The token at hand goes on; the next call asks again.

        self._ahead = asyncio.create_task(ask())


def refuses_token(error: DomainError) -> bool:
    """Say whether a call failed because of its token, so that another one may do."""
    return isinstance(error, Unauthenticated) and error.reason in _REFUSED
