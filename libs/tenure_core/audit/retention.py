"""How much of the audit trail is kept, and which of its oldest batches may go now.

Pure. Whole batches go, oldest first, and never the last: the next one is chained to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tenure_core.timebase import Millis


@dataclass(frozen=True, slots=True)
class TrailLimits:
    """A batch goes once it was sealed longer ago than `age_ms`, or the entries exceed `bytes`."""

    age_ms: Millis
    bytes: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A batch as retention sees it: when it was sealed, how many entries, their size in bytes."""

    number: int
    sealed: Millis
    entries: int
    bytes: int


def to_drop(
    oldest: Sequence[Sealed], kept_bytes: int, limits: TrailLimits, now: Millis, entries_max: int
) -> tuple[Sealed, ...]:
    """Return the batches to drop in one step, at most `entries_max` entries or one batch.

    `oldest` are the first of the chain, in order, without its last.
    """
    dropped: list[Sealed] = []
    entries = 0
    for batch in oldest:
        old = batch.sealed < now - limits.age_ms
        entries += batch.entries
        if not (old or kept_bytes > limits.bytes) or (dropped and entries > entries_max):
            break
        dropped.append(batch)
        kept_bytes -= batch.bytes
    return tuple(dropped)
