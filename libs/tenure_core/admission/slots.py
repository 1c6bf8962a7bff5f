"""Vectors of exact amounts as the ancestor's clients and policies state them.

Such a vector may hold `Infinity` (no limit) and negative differences, so it is a plain mapping to
`Decimal`. Whoever decides converts it to integers first; this module only reads, completes,
compares and prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from enum import Enum
from typing import Final

from tenure_core.admission.quantities import (
    INFINITY,
    parse_bytes,
    parse_count,
    plain,
    short_bytes,
)

Slots = Mapping[str, Decimal]
"""Exact amounts by kind; a kind that is absent counts as zero."""

Written = str | int | None
"""An amount as somebody wrote it; None means "not said"."""

PRINTED_STEP: Final = Decimal("0.000001")
"""What is finer is not kept by any ledger, so it is not printed."""

_ZERO: Final = Decimal(0)


class SlotType(Enum):
    """How the amounts of a kind are written."""

    COUNT = "count"
    BYTES = "bytes"


class SlotFault(Enum):
    """Why a vector was refused."""

    INVALID = "INVALID"
    """Some amount is no amount of its kind."""
    UNKNOWN = "UNKNOWN"
    """Some kind is not known here."""
    NEGATIVE = "NEGATIVE"
    """Somebody asked for less than nothing."""
    UNDEFINED = "UNDEFINED"
    """The difference of two infinite amounts."""


class SlotError(ValueError):
    """A vector was refused; `fault` says why."""

    def __init__(self, fault: SlotFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Unnamed(Enum):
    """What a policy allows of the kinds that it does not name."""

    LIMITED = "LIMITED"
    """Nothing."""
    UNLIMITED = "UNLIMITED"
    """Any amount."""


def guessed_type(kind: str) -> SlotType:
    """Return bytes for a kind whose name contains `mem`, counts otherwise."""
    return SlotType.BYTES if "mem" in kind else SlotType.COUNT


def from_request(
    written: Mapping[str, Written], types: Mapping[str, SlotType] | None = None
) -> dict[str, Decimal]:
    """Read what a person asks for, completed with zeros over the kinds in `types`.

    Without `types` each kind's type is guessed from its name and nothing is added. A kind that is
    not known may be named with zero and is then dropped. Raises SlotError: INVALID, UNKNOWN, and
    NEGATIVE (also for a bytes kind, where only `Infinity` may be infinite).
    """
    slots: dict[str, Decimal] = {}
    for kind, text in written.items():
        if text is None:
            continue
        if types is not None and kind not in types:
            if _read(guessed_type(kind), kind, text) == 0:
                continue
            raise SlotError(SlotFault.UNKNOWN, f"{kind} is not known here")
        amount = _read(types[kind] if types is not None else guessed_type(kind), kind, text)
        if not amount.is_nan() and amount < 0:
            raise SlotError(SlotFault.NEGATIVE, f"{kind} is less than nothing")
        slots[kind] = amount
    return slots if types is None else {**dict.fromkeys(types, _ZERO), **slots}


def from_policy(
    written: Mapping[str, Written], unnamed: Unnamed, types: Mapping[str, SlotType]
) -> dict[str, Decimal]:
    """Read the total that a policy allows, completed over the kinds in `types`.

    Kinds that are not known are dropped; kinds that are not named, or named with None, get
    nothing or `Infinity`, as `unnamed` says. Raises SlotError UNKNOWN for what cannot be read.
    """
    rest = INFINITY if unnamed is Unnamed.UNLIMITED else _ZERO
    slots = dict.fromkeys(types, rest)
    for kind, text in written.items():
        if text is None or kind not in types:
            continue
        try:
            slots[kind] = _read(types[kind], kind, text)
        except SlotError as error:
            raise SlotError(SlotFault.UNKNOWN, str(error)) from None
    return slots


def completed(slots: Slots, known: Mapping[str, SlotType], *, drop: bool) -> dict[str, Decimal]:
    """Return `slots` over exactly the kinds in `known`, zero where absent.

    Kinds beyond are dropped when `drop` is set; otherwise raises SlotError UNKNOWN.
    """
    beyond = [kind for kind in slots if kind not in known]
    if beyond and not drop:
        raise SlotError(SlotFault.UNKNOWN, f"{', '.join(sorted(beyond))} are not known here")
    return {kind: slots.get(kind, _ZERO) for kind in known}


def added(one: Slots, other: Slots) -> dict[str, Decimal]:
    """Return the sum over the union of the kinds."""
    return _joined(one, other, lambda left, right: left + right)


def subtracted(one: Slots, other: Slots) -> dict[str, Decimal]:
    """Return the difference over the union of the kinds; raises SlotError UNDEFINED for ∞ − ∞."""
    return _joined(one, other, lambda left, right: left - right)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two vectors compare kind by kind; two vectors may be neither smaller nor greater.

    `covers` says that every kind of the second is in the first with the same amount, `covered` the
    reverse; a kind that is absent counts as zero there too.
    """

    equal: bool
    less: bool
    at_most: bool
    greater: bool
    at_least: bool
    covers: bool
    covered: bool


def compared(one: Slots, other: Slots) -> Comparison:
    """Compare two vectors over the union of their kinds."""
    kinds = one.keys() | other.keys()
    pairs = [(one.get(kind, _ZERO), other.get(kind, _ZERO)) for kind in kinds]
    equal = all(left == right for left, right in pairs)
    at_most = all(left <= right for left, right in pairs)
    at_least = all(left >= right for left, right in pairs)
    return Comparison(
        equal=equal,
        less=at_most and not equal,
        at_most=at_most,
        greater=at_least and not equal,
        at_least=at_least,
        covers=all(one.get(kind, _ZERO) == amount for kind, amount in other.items()),
        covered=all(other.get(kind, _ZERO) == amount for kind, amount in one.items()),
    )


def printed(slots: Slots) -> dict[str, str]:
    """Return every amount as plain text, without exponent or trailing zeros."""
    return {kind: plain(_kept(amount)) for kind, amount in slots.items()}


def humanized(slots: Slots, types: Mapping[str, SlotType]) -> dict[str, str]:
    """Return every amount as people write it; types that are not known are guessed."""
    return {
        kind: short_bytes(amount)
        if types.get(kind, guessed_type(kind)) is SlotType.BYTES
        else plain(amount)
        for kind, amount in slots.items()
    }


def _read(slot_type: SlotType, kind: str, text: str | int) -> Decimal:
    try:
        return parse_bytes(str(text)) if slot_type is SlotType.BYTES else parse_count(str(text))
    except ValueError as error:
        raise SlotError(SlotFault.INVALID, f"{kind}: {error}") from None


def _joined(
    one: Slots, other: Slots, operation: Callable[[Decimal, Decimal], Decimal]
) -> dict[str, Decimal]:
    try:
        return {
            kind: operation(one.get(kind, _ZERO), other.get(kind, _ZERO))
            for kind in [*one, *(kind for kind in other if kind not in one)]
        }
    except InvalidOperation:
        raise SlotError(SlotFault.UNDEFINED, "an infinite amount less another") from None


def _kept(amount: Decimal) -> Decimal:
    return amount.quantize(PRINTED_STEP, ROUND_HALF_EVEN) if _is_fine(amount) else amount


def _is_fine(amount: Decimal) -> bool:
    exponent = amount.as_tuple().exponent
    return isinstance(exponent, int) and exponent < -6
