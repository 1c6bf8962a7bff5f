"""Settings of owners, deliveries under way, and how long after a failure the next try is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from tenure_core.timebase import HOUR_MS, MINUTE_MS, Millis

ATTEMPTS_MAX: Final = 10
_FIRST_PAUSE_MS: Final[Millis] = 5_000
_PAUSE_MAX_MS: Final[Millis] = HOUR_MS
ENDING_LEAD_MS_DEFAULT: Final[Millis] = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """How an owner is told; empty texts mean not at all, no kinds all of them."""

    webhook_url: str = ""
    webhook_secret: str = field(default="", repr=False)
    email: str = ""
    kinds: tuple[str, ...] = ()
    ending_lead_ms: Millis = ENDING_LEAD_MS_DEFAULT


@dataclass(frozen=True, slots=True)
class Delivery:
    """A notice on one way to its owner; `target` is an address of the channel."""

    id: str
    channel: str
    kind: str
    owner: str
    facts: Mapping[str, object]
    created: Millis
    attempts: int
    target: str
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class KeptNotice:
    """A notice as its owner sees it in the list."""

    id: str
    channel: str
    kind: str
    lease: str
    state: str
    created: Millis
    attempts: int
    error: str


class DeliveryFailed(Exception):
    """A delivery did not succeed; one `for_good` is not tried again."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good


class Channel(Protocol):
    """One way to owners."""

    async def send(self, delivery: Delivery) -> None:
        """Return once the receiver took it. Raises DeliveryFailed."""
        ...


def pause_ms(attempts: int) -> Millis:
    """Return how long to wait after so many failed attempts: 5 s, doubled up to an hour."""
    return min(_PAUSE_MAX_MS, _FIRST_PAUSE_MS << (attempts - 1))
