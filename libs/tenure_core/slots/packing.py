"""Amounts of several kinds as one integer, so that comparing and subtracting cost one operation.

Every kind has a field of `FIELD_BITS` bits: 54 for the amount and, on top, a guard bit that is set
in what is *free* and clear in what is *demanded*. `free - demand` keeps all guard bits exactly when
every amount demanded is there, and then it is what remains free. The trick is known as SIMD within
a register (Lamport 1975, "Multiple byte processing with full-word instructions").
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tenure_core.resources import ResourceVector

FIELD_BITS: Final = 55
_REMEMBERED_MAX: Final = 4096
AMOUNT_MASK: Final = (1 << (FIELD_BITS - 1)) - 1


class Packing:
    """The fields of the kinds seen so far; grows, never shrinks.

    `guard` is the guard bit of every field, and also the packed value of "nothing free".
    """

    __slots__ = ("_fields", "_packed", "guard")

    def __init__(self) -> None:
        self._fields: dict[str, int] = {}
        self._packed: dict[ResourceVector, int] = {}
        self.guard = 0

    def learn(self, kinds: Iterable[str]) -> int:
        """Give every new kind a field; return the guard bits that are new, 0 for none."""
        before = self.guard
        for kind in kinds:
            if kind not in self._fields:
                shift = len(self._fields) * FIELD_BITS
                self._fields[kind] = shift
                self.guard |= 1 << (shift + FIELD_BITS - 1)
        return self.guard ^ before

    def pack(self, amounts: ResourceVector) -> int | None:
        """Return the packed amounts without guard bits, None when a kind has no field."""
        known = self._packed.get(amounts)
        if known is not None:
            return known
        packed = 0
        for kind in amounts:
            shift = self._fields.get(kind)
            if shift is None:
                return None
            packed |= amounts[kind] << shift
        if len(self._packed) == _REMEMBERED_MAX:
            self._packed.clear()
        self._packed[amounts] = packed
        return packed

    def unpack(self, packed: int) -> ResourceVector:
        """Return the amounts of a packed value, with or without guard bits."""
        return ResourceVector(
            {kind: (packed >> shift) & AMOUNT_MASK for kind, shift in self._fields.items()}
        )

    def times(self, free: int, demand: int, most: int) -> int:
        """Return how often `demand` fits in `free` at once, at most `most`."""
        fewest = most
        for shift in self._fields.values():
            wanted = (demand >> shift) & AMOUNT_MASK
            if wanted:
                fewest = min(fewest, ((free >> shift) & AMOUNT_MASK) // wanted)
        return fewest

    def clamped(self, free: int, demand: int) -> int:
        """Return the part of `demand` that `free` can give, kind by kind."""
        given = 0
        for shift in self._fields.values():
            wanted = (demand >> shift) & AMOUNT_MASK
            given |= min(wanted, (free >> shift) & AMOUNT_MASK) << shift
        return given

    def fields_of(self, demand: int) -> list[tuple[int, int]]:
        """Return (where its field lies, amount) for each kind of which something is demanded."""
        fields = [(shift, (demand >> shift) & AMOUNT_MASK) for shift in self._fields.values()]
        return [field for field in fields if field[1]]
