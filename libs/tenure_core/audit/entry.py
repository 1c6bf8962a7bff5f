"""An entry of the audit trail, and the digest that is sealed of it.

Decides what of an entry is sealed: everything. The store computes the same digests in SQL.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class Origin:
    """Who makes a change by which call, and from where; all empty for the service itself."""

    caller: str = ""
    method: str = ""
    peer: str = ""
    request_id: str = ""


ITSELF: Final = Origin()


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """One resource before and after a change, as its service encodes it, without secrets.

    `before` is None for what did not exist, `after` for what exists no more.
    """

    resource: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True)
class Entry:
    """A change with who made it and when; `tx` and `sequence` say where it stands."""

    tx: int
    sequence: int
    at: Millis
    origin: Origin
    change: AuditedChange

    def digest(self) -> bytes:
        """Return the SHA-256 of all fields, each with its length, so that none runs into another.

        Numbers are 8 bytes, lengths 4 bytes with -1 for what is absent, big-endian.
        """
        sealed = hashlib.sha256()
        for number in (self.tx, self.sequence, self.at):
            sealed.update(number.to_bytes(8, "big", signed=True))
        origin, change = self.origin, self.change
        texts = (origin.caller, origin.method, change.resource, origin.peer, origin.request_id)
        for field in (*(text.encode() for text in texts), change.before, change.after):
            length = -1 if field is None else len(field)
            sealed.update(length.to_bytes(4, "big", signed=True))
            sealed.update(field or b"")
        return sealed.digest()
