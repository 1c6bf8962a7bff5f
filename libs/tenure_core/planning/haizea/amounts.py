"""Amounts of resources as the ancestor counts them, some in several instances.

An amount is a whole number, or a tuple of them for a type with several instances (four cores of
100). Instances asked for are placed first fit, in the order given, without going back; adding up
two demands lists all their instances.
"""

from __future__ import annotations

Amount = int | tuple[int, ...]
Amounts = tuple[Amount, ...]
"""One amount a resource type, in the order of the site's types."""


def fits_in(need: Amounts, free: Amounts) -> bool:
    """Say whether what is needed can be taken from what is free."""
    for wanted, there in zip(need, free, strict=True):
        if isinstance(wanted, int):
            if wanted > _whole(there):
                return False
        elif _placed(wanted, there) is None:
            return False
    return True


def plus(left: Amounts, right: Amounts) -> Amounts:
    """Return the sum of two demands."""
    return tuple(
        a + b if isinstance(a, int) and isinstance(b, int) else _each(a) + _each(b)
        for a, b in zip(left, right, strict=True)
    )


def minus(free: Amounts, taken: Amounts) -> Amounts:
    """Return what is left; an instance that fits nowhere is taken from nowhere."""
    left: list[Amount] = []
    for there, amount in zip(free, taken, strict=True):
        if isinstance(there, int):
            left.append(there - _whole(amount))
        else:
            rest = _placed(_each(amount), there)
            left.append(there if rest is None else rest)
    return tuple(left)


def least(left: Amounts, right: Amounts) -> Amounts:
    """Return the smaller of both, instance by instance."""
    return tuple(
        min(a, b)
        if isinstance(a, int) and isinstance(b, int)
        else tuple(min(x, y) for x, y in zip(_each(a), _each(b), strict=True))
        for a, b in zip(left, right, strict=True)
    )


def total(amount: Amount) -> int:
    """Return the sum over the instances."""
    return amount if isinstance(amount, int) else sum(amount)


def _whole(amount: Amount) -> int:
    return amount if isinstance(amount, int) else amount[0]


def _each(amount: Amount) -> tuple[int, ...]:
    return (amount,) if isinstance(amount, int) else amount


def _placed(wanted: tuple[int, ...], there: Amount) -> tuple[int, ...] | None:
    """Return what is left of the instances, None when a wanted one does not fit."""
    left = list(_each(there))
    for amount in wanted:
        if not amount:
            continue
        for i, free in enumerate(left):
            if free >= amount:
                left[i] = free - amount
                break
        else:
            return None
    return tuple(left)
