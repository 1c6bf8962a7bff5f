"""Reads and writes single amounts the way the ancestor's clients do.

Amounts of bytes take a unit that is always a power of 1024 (`1k`, `1 KiB`, `2.5 GiBytes`), counts
are decimals to a thousandth. `tenure_core.resources` has the notation of our own clients, where
`k` is a thousand; nothing else in the core knows of this one.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final

COUNT_STEP: Final = Decimal("0.001")
"""The finest count."""

INFINITY: Final = Decimal("Infinity")

_UNITS: Final = "kmgtpezy"
_BYTES = re.compile(r"(?P<number>-?[\d_]*\.?\d+)\s*(?P<unit>[kmgtpezy]?)(?P<suffix>[a-z]*)")
_SUFFIXES: Final = frozenset({"", "b", "byte", "bytes"})
_UNIT_SUFFIXES: Final = frozenset({"", "b", "byte", "bytes", "ib", "ibyte", "ibytes"})
_SHORT_DIGITS: Final = Decimal("0.01")


def parse_bytes(text: str) -> Decimal:
    """Return the bytes that `text` names, whole, or `Infinity` for any word that begins with inf.

    A number may have underscores and a fraction; a fraction needs a unit, and what is finer than a
    byte is cut off. Raises ValueError for everything else.
    """
    words = text.strip().lower()
    if words.startswith("inf"):
        return INFINITY
    match = _BYTES.fullmatch(words)
    if match is None:
        raise ValueError(f"{text!r} is no amount of bytes; write for example 512m or 16 GiB")
    number, unit, suffix = match["number"].replace("_", ""), match["unit"], match["suffix"]
    if suffix not in (_UNIT_SUFFIXES if unit else _SUFFIXES):
        raise ValueError(f"{text!r} has no known unit; write for example 512m or 16 GiB")
    if not unit and "." in number:
        raise ValueError(f"{text!r} is a fraction of a byte; give it a unit")
    try:
        amount = Decimal(number)
    except InvalidOperation:
        raise ValueError(f"{text!r} is no amount of bytes") from None
    power = _UNITS.index(unit) + 1 if unit else 0
    return Decimal(int(amount * 1024**power))


def parse_count(text: str) -> Decimal:
    """Return the count that `text` names, rounded half to even at a thousandth.

    `Infinity`, its negative and `NaN` pass through. Raises ValueError for what is no number.
    """
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"{text!r} is no count; write for example 2 or 0.5") from None
    if not number.is_finite():
        return number
    return number.quantize(COUNT_STEP, ROUND_HALF_EVEN)


def plain(number: Decimal) -> str:
    """Return the number without exponent and without trailing zeros; `-0` becomes `0`."""
    if not number.is_finite():
        return str(number)
    text = f"{number:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def format_bytes(number: Decimal) -> str:
    """Return the amount with the largest unit that fits, at most two decimals: `124.32 KiB`."""
    if not number.is_finite():
        return plain(number)
    power = _power(number)
    if power == 0:
        return "1 byte" if number == 1 else f"{plain(number)} bytes"
    return f"{_scaled(number, power)} {_UNITS[power - 1].upper()}iB"


def short_bytes(number: Decimal) -> str:
    """Return the amount with one letter, at most two decimals: `512k`, `1.46k`, `930`."""
    if not number.is_finite():
        return plain(number)
    power = _power(number)
    return _scaled(number, power) + (_UNITS[power - 1] if power else "")


def _power(number: Decimal) -> int:
    power = 0
    while power < len(_UNITS) and abs(number) >= Decimal(1024) ** (power + 1):
        power += 1
    return power


def _scaled(number: Decimal, power: int) -> str:
    if power == 0:
        return plain(number)
    value = number / Decimal(1024) ** power
    return plain(value.quantize(_SHORT_DIGITS, ROUND_HALF_EVEN))
