"""Amounts of resources: integers in base units, and the way people write them.

Base units: `cpu` in millicores, `gpu` in thousandths of a device, `memory` and `disk` (and any
kind whose name ends in `_bytes`) in bytes, every other kind a plain count. People write `2`,
`1500m`, `0.5`, `16Gi`, `512M`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final

AMOUNT_MAX: Final = 2**53 - 1
"""The largest amount of one kind: exact in JSON and in every client language."""

KINDS_MAX: Final = 32
"""The most kinds that one vector may name."""

_KIND = re.compile(r"[a-z][a-z0-9_.\-/]{0,62}")
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)")
_MILLI_KINDS: Final = frozenset({"cpu", "gpu"})
_BYTE_KINDS: Final = frozenset({"memory", "disk"})
_BYTE_SUFFIXES: Final[Mapping[str, int]] = {
    "": 1, "b": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "pb": 10**15,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "pib": 2**50,
}  # fmt: skip


def is_kind(name: str) -> bool:
    """Say whether `name` may name a kind of resource: lower case, digits, `_ . - /`, at most 63."""
    return _KIND.fullmatch(name) is not None


def is_bytes_kind(kind: str) -> bool:
    """Say whether amounts of `kind` are bytes."""
    return kind in _BYTE_KINDS or kind.endswith("_bytes")


def parse_quantity(kind: str, text: str) -> int:
    """Return the amount that a person wrote, in the base unit of `kind`.

    Raises ValueError, with a sentence that says what would be right, for text that is no
    quantity, has a suffix that does not fit the kind, is finer than the base unit, or is larger
    than `AMOUNT_MAX`.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no quantity of {kind}; write {_example(kind)}")
    number, suffix = Decimal(match[1]), match[2]
    if kind in _MILLI_KINDS:
        if suffix not in ("", "m"):
            raise ValueError(f"{kind} takes no suffix {suffix!r}; write {_example(kind)}")
        amount = number if suffix == "m" else number * 1000
    elif is_bytes_kind(kind):
        factor = _BYTE_SUFFIXES.get(suffix.lower())
        if factor is None:
            raise ValueError(f"{kind} takes no suffix {suffix!r}; write {_example(kind)}")
        amount = number * factor
    else:
        if suffix:
            raise ValueError(f"{kind} is a plain count without suffix, not {text!r}")
        amount = number
    if amount != amount.to_integral_value():
        raise ValueError(f"{text!r} is finer than the smallest amount of {kind}")
    if amount > AMOUNT_MAX:
        raise ValueError(f"{text!r} is more than the largest amount of {kind}, {AMOUNT_MAX}")
    return int(amount)


def format_quantity(kind: str, amount: int) -> str:
    """Return the shortest exact text for `amount`, which `parse_quantity` reads back as is."""
    if kind in _MILLI_KINDS:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if is_bytes_kind(kind) and amount:
        for suffix in ("Pi", "Ti", "Gi", "Mi", "Ki"):
            factor = _BYTE_SUFFIXES[suffix.lower()]
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
    return str(amount)


def _example(kind: str) -> str:
    if kind in _MILLI_KINDS:
        return "for example 2, 0.5 or 1500m"
    if is_bytes_kind(kind):
        return "for example 512Mi, 16Gi or 2G"
    return "a whole number"


class ResourceVector(Mapping[str, int]):
    """Amounts by kind; a kind that is absent counts as zero, and zeros are not stored.

    Immutable and hashable. Amounts are never negative: subtracting more than there is raises
    ValueError.
    """

    __slots__ = ("_amounts", "_hash")

    def __init__(self, amounts: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        items = dict(amounts)
        for kind, amount in items.items():
            if amount < 0 or amount > AMOUNT_MAX:
                raise ValueError(f"an amount lies in 0..{AMOUNT_MAX}, not {kind}={amount}")
        self._amounts = {kind: items[kind] for kind in sorted(items) if items[kind]}
        self._hash: int | None = None

    @classmethod
    def parse(cls, text: str) -> ResourceVector:
        """Read `cpu=2,memory=4Gi`. Raises ValueError with a sentence on what is wrong."""
        amounts: dict[str, int] = {}
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            kind, equals, quantity = part.partition("=")
            if not equals or not is_kind(kind):
                raise ValueError(f"{part!r} is not KIND=QUANTITY, for example cpu=2")
            if kind in amounts:
                raise ValueError(f"{kind} is given twice")
            amounts[kind] = parse_quantity(kind, quantity)
        return cls(amounts)

    def __getitem__(self, kind: str) -> int:
        return self._amounts.get(kind, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __contains__(self, kind: object) -> bool:
        return kind in self._amounts

    def get(self, kind: str, default: int = 0) -> int:  # type: ignore[override]  # zero, never None
        """Return the amount of `kind`, zero when absent."""
        return self._amounts.get(kind, default)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ResourceVector):
            return self._amounts == other._amounts
        return NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._amounts.items()))
        return self._hash

    def __add__(self, other: ResourceVector) -> ResourceVector:
        total = dict(self._amounts)
        for kind, amount in other._amounts.items():
            total[kind] = total.get(kind, 0) + amount
        return ResourceVector(total)

    def __sub__(self, other: ResourceVector) -> ResourceVector:
        rest = dict(self._amounts)
        for kind, amount in other._amounts.items():
            rest[kind] = rest.get(kind, 0) - amount
        return ResourceVector(rest)

    def __mul__(self, times: int) -> ResourceVector:
        return ResourceVector({kind: amount * times for kind, amount in self._amounts.items()})

    def fits_in(self, capacity: Mapping[str, int]) -> bool:
        """Say whether no kind asks for more than `capacity` has."""
        return all(amount <= capacity.get(kind, 0) for kind, amount in self._amounts.items())

    def times_in(self, capacity: Mapping[str, int]) -> int:
        """Return how often this vector fits in `capacity` at once; zero fits `AMOUNT_MAX` times."""
        return min(
            (capacity.get(kind, 0) // amount for kind, amount in self._amounts.items()),
            default=AMOUNT_MAX,
        )

    def __str__(self) -> str:
        return ",".join(f"{kind}={format_quantity(kind, self[kind])}" for kind in self) or "nothing"

    def __repr__(self) -> str:
        return f"ResourceVector({self._amounts})"
