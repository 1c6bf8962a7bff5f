"""Where in a change feed someone is, and the opaque resume token that says so.

Decides what a position covers: every change at or before (transaction, sequence), and, for one
taken together with a list, every change that the list's snapshot could see.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tenure_core.errors import Invalid, Violation

SEQUENCE_MAX: Final = 2**63 - 1
_SNAPSHOT: Final = re.compile(r"(\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?)", re.ASCII)


@dataclass(frozen=True)
class Position:
    """A place in one incarnation of a feed.

    `snapshot` is a PostgreSQL snapshot (`xmin:xmax:xip,…`) or "" when the order alone tells.
    """

    incarnation: str
    tx: int
    sequence: int
    snapshot: str = ""

    @cached_property
    def _seen(self) -> tuple[int, frozenset[int]]:
        _, xmax, running = self.snapshot.split(":")
        return int(xmax), frozenset(int(each) for each in running.split(",") if each)

    @property
    def order(self) -> tuple[int, int]:
        """Return what positions of one incarnation are ordered by."""
        return self.tx, self.sequence

    def covers(self, tx: int, sequence: int) -> bool:
        """Say whether the change at (tx, sequence) is one that came before."""
        if (tx, sequence) <= self.order:
            return True
        if not self.snapshot:
            return False
        xmax, running = self._seen
        return tx < xmax and tx not in running

    def after(self, tx: int, sequence: int) -> Position:
        """Return the position behind a change; the snapshot is dropped once it tells nothing."""
        tells = bool(self.snapshot) and tx < self._seen[0]
        return Position(self.incarnation, tx, sequence, self.snapshot if tells else "")

    def token(self) -> str:
        """Return the opaque token of this position."""
        parts = [self.incarnation, self.tx, self.sequence, self.snapshot]
        text = json.dumps(parts, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_token(token: str) -> Position:
    """Return the position in a token. Raises Invalid RESUME_TOKEN_INVALID for what is none."""
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        position = Position(*json.loads(text))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise _invalid() from None
    if not _is_sound(position):
        raise _invalid()
    return position


def _is_sound(position: Position) -> bool:
    """Say whether a position can have come from us: what PostgreSQL would refuse is not sound."""
    numbers = (position.tx, position.sequence)
    if type(position.incarnation) is not str or type(position.snapshot) is not str:
        return False
    if not all(type(number) is int and 0 <= number <= SEQUENCE_MAX for number in numbers):
        return False
    if not position.snapshot:
        return True
    match = _SNAPSHOT.fullmatch(position.snapshot)
    if match is None:
        return False
    running = [int(each) for each in match[3].split(",") if each]
    xmin, xmax = int(match[1]), int(match[2])
    ascending = all(one < other for one, other in itertools.pairwise(running))
    return 0 < xmin <= xmax and ascending and all(xmin <= each < xmax for each in running)


def _invalid() -> Invalid:
    return Invalid(
        [Violation("resume_token", "RESUME_TOKEN_INVALID", "is not a token of this feed")],
        "RESUME_TOKEN_INVALID",
    )
