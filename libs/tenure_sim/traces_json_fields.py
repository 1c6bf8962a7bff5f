"""The fields of JSON objects: whatever is not what it should be raises Fault with a sentence."""

from __future__ import annotations

from typing import Any

from tenure_core.resources import ResourceVector, is_kind, parse_quantity


class Fault(Exception):
    """A value is not what it should be; the text says what would be right."""


def amounts_of(value: object) -> ResourceVector:
    """Return amounts by kind, in base units or as people write them. Raises Fault."""
    if not isinstance(value, dict) or not value:
        raise Fault('amounts are an object like {"cpu": 1000}, in base units')
    amounts: dict[str, int] = {}
    try:
        for kind, amount in value.items():
            if not is_kind(kind):
                raise Fault(f"{kind!r} is no kind of resource")
            if isinstance(amount, str):
                amounts[kind] = parse_quantity(kind, amount)
            elif isinstance(amount, int) and not isinstance(amount, bool):
                amounts[kind] = amount
            else:
                raise Fault(f"the amount of {kind} is a whole number, not {amount!r}")
        return ResourceVector(amounts)
    except ValueError as error:
        raise Fault(str(error)) from None


def whole(entry: dict[str, Any], key: str, default: int | None = None, *, least: int = 0) -> int:
    """Return a whole number of at least `least`. Raises Fault."""
    value = entry.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**53:
        raise Fault(f"{key} is a whole number from {least}, not {value!r}")
    return value


def text_of(entry: dict[str, Any], key: str, default: str | None = None) -> str:
    """Return a text, which may only be empty where there is a default. Raises Fault."""
    value = entry.get(key, default)
    if not isinstance(value, str) or (default is None and not value):
        raise Fault(f"{key} is a text, not {value!r}")
    return value


def flag(entry: dict[str, Any], key: str, *, default: bool) -> bool:
    """Return true or false. Raises Fault."""
    value = entry.get(key, default)
    if not isinstance(value, bool):
        raise Fault(f"{key} is true or false, not {value!r}")
    return value


def words_of(entry: dict[str, Any], key: str) -> dict[str, str]:
    """Return an object of texts, empty when it is not there. Raises Fault."""
    value = entry.get(key, {})
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise Fault(f"{key} is an object of texts")
    return value
