"""The chain of sealed batches: what a batch's hash covers, and what is wrong with one.

Pure. Each batch carries the hash of the one before and the digests of its entries. So a change of
an entry shows at that entry; one of a batch shows at its hash; and whoever makes the hash fit has
to rewrite all batches that follow, which shows to anyone who has noted a later hash elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tenure_core.audit.entry import Entry
from tenure_core.timebase import Millis

DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries sealed together, in the order of their sequences.

    What is not sealed yet has a greater sequence than `floor`, and a greater (tx, sequence) than
    (`last_tx`, `last_sequence`).
    """

    number: int
    previous: bytes
    sealed: Millis
    floor: int
    last_tx: int
    last_sequence: int
    sequences: tuple[int, ...]
    digests: bytes
    hash: bytes

    def recomputed(self) -> bytes:
        """Return the SHA-256 of all that the batch says but its hash; numbers are 8 bytes each."""
        sealed = hashlib.sha256(self.previous)
        header = (self.number, self.sealed, self.floor, self.last_tx, self.last_sequence)
        for number in (*header, *self.sequences):
            sealed.update(number.to_bytes(8, "big", signed=True))
        sealed.update(self.digests)
        return sealed.digest()

    def waits(self, tx: int, sequence: int) -> bool:
        """Say whether an entry is still to be sealed, given that this is the last batch."""
        return sequence > self.floor and (tx, sequence) > (self.last_tx, self.last_sequence)


class BreachKind(Enum):
    """How a trail differs from what was sealed."""

    ALTERED = "ALTERED"
    REMOVED = "REMOVED"
    INSERTED = "INSERTED"
    CHAIN_BROKEN = "CHAIN_BROKEN"


@dataclass(frozen=True, slots=True)
class Breach:
    """One difference; `batch` or `sequence` is 0 where none is concerned."""

    kind: BreachKind
    batch: int
    sequence: int
    message: str


def breaches_of_batch(
    before: tuple[int, bytes] | None, batch: Batch, entries: Mapping[int, Entry]
) -> Iterator[Breach]:
    """Yield what is wrong with a batch, given (number, hash) of the one before it in the chain.

    `entries` are those of its sequences that exist. O(entries).
    """
    yield from _breaches_of_chain(before, batch)
    if len(batch.digests) != DIGEST_BYTES * len(batch.sequences):
        return
    for index, sequence in enumerate(batch.sequences):
        sealed = batch.digests[index * DIGEST_BYTES : (index + 1) * DIGEST_BYTES]
        entry = entries.get(sequence)
        if entry is None:
            text = f"entry {sequence}, sealed in batch {batch.number}, is gone"
            yield Breach(BreachKind.REMOVED, batch.number, sequence, text)
        elif entry.digest() != sealed:
            text = f"entry {sequence} is not what was sealed in batch {batch.number}"
            yield Breach(BreachKind.ALTERED, batch.number, sequence, text)


def _breaches_of_chain(before: tuple[int, bytes] | None, batch: Batch) -> Iterator[Breach]:
    number, previous = before or (-1, b"")

    def broken(text: str) -> Breach:
        return Breach(BreachKind.CHAIN_BROKEN, batch.number, 0, text)

    if batch.number != number + 1:
        yield broken(f"batch {batch.number} comes after batch {number}: what was between is gone")
    elif batch.previous != previous:
        yield broken(f"batch {batch.number} does not carry the hash of batch {number}")
    if batch.recomputed() != batch.hash:
        yield broken(f"the hash of batch {batch.number} is not that of what it lists")


@dataclass(frozen=True, slots=True)
class Noted:
    """A batch's number and hash as they were noted elsewhere."""

    number: int
    hash: bytes

    def breach_of_hash(self, number: int, found: bytes) -> Breach | None:
        """Return what is wrong when the chain has another batch, by its hash, at this place."""
        if number != self.number or found == self.hash:
            return None
        text = f"batch {self.number} is not the one that was noted: the chain was written anew"
        return Breach(BreachKind.CHAIN_BROKEN, self.number, 0, text)

    def breach_at_end(self, last: int) -> Breach | None:
        """Return what is wrong when the chain ends (at batch `last`) before this place."""
        if last >= self.number:
            return None
        text = f"the chain ends with batch {last}, before batch {self.number} that was noted"
        return Breach(BreachKind.CHAIN_BROKEN, self.number, 0, text)


def inserted(
    found: Iterable[tuple[int, int]], sealed: Collection[int], last: Batch
) -> Iterator[Breach]:
    """Yield the entries, as (tx, sequence), that no batch lists and that do not wait for one."""
    for tx, sequence in found:
        if sequence not in sealed and not last.waits(tx, sequence):
            text = f"entry {sequence} lies among sealed ones, and no batch lists it"
            yield Breach(BreachKind.INSERTED, 0, sequence, text)
