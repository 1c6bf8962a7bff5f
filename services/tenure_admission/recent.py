"""Remembers what was made of the bodies seen last, in bounded memory.

A body (the bytes of a lease) says all that is made of it, so nothing remembered is out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

ENTRIES_MAX: Final = 4_096
BODY_BYTES_MAX: Final = 16 * 1024
"""Larger ones are rare and are made anew each time: all together stay under 64 MiB."""

Made = TypeVar("Made")


class Recent(Generic[Made]):
    """What `make` returned for the bodies seen last; treat it as read-only."""

    def __init__(self, make: Callable[[bytes], Made], entries_max: int = ENTRIES_MAX) -> None:
        self._make = make
        self._entries_max = entries_max
        self._made: dict[bytes, Made] = {}

    def __len__(self) -> int:
        return len(self._made)

    def of(self, body: bytes) -> Made:
        """Return what is made of a body."""
        made = self._made.get(body)
        if made is None:
            made = self._make(body)
            self.put(body, made)
        return made

    def put(self, body: bytes, made: Made) -> None:
        """Remember what a body was made from; the oldest of too many is forgotten."""
        if len(body) > BODY_BYTES_MAX:
            return
        if len(self._made) >= self._entries_max and body not in self._made:
            del self._made[next(iter(self._made))]
        self._made[body] = made
