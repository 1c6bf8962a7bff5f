"""The values of this package as plain data (JSON) and back, without loss.

For storing a group's or a fleet's state (P22), and for keeping the inputs of decisions so that a
what-if can run on them (P27). Only values made of the types below can be converted; a field that
is absent takes its default, so that old data is read by newer code.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

from tenure_core.errors import Invalid, Violation
from tenure_core.resources import ResourceVector

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """Return dataclasses and mappings as dicts, sequences and sets as lists, the rest as scalars.

    Raises TypeError for a value that has no plain form: that is a mistake in the code.
    """
    if value is None or isinstance(value, bool | int) or type(value) is str:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(to_plain(entry) for entry in value)
    if isinstance(value, Sequence):
        return [to_plain(entry) for entry in value]
    raise TypeError(f"{type(value).__name__} has no plain form")


def from_plain(kind: type[T], plain: Any) -> T:
    """Return the value of `kind` that `to_plain` wrote.

    Raises Invalid with the path of the first field that does not read.
    """
    return typing.cast("T", _read(kind, plain, kind.__name__))


def _read(kind: Any, plain: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if plain is None and type(None) in arguments:
            return None
        return _read(next(a for a in arguments if a is not type(None)), plain, path)
    if origin is tuple:
        return _read_tuple(arguments, plain, path)
    if kind is ResourceVector:
        return ResourceVector(_checked(plain, dict, path))
    if origin is not None and issubclass(origin, Mapping):
        entries = _checked(plain, dict, path).items()
        return {key: _read(arguments[1], entry, f"{path}.{key}") for key, entry in entries}
    if origin is not None and issubclass(origin, AbstractSet):
        return frozenset(_read(arguments[0], entry, path) for entry in _checked(plain, list, path))
    if origin is not None and issubclass(origin, Sequence):
        return _read_tuple((arguments[0], ...), plain, path)
    if is_dataclass(kind):
        return _read_fields(typing.cast("type", kind), _checked(plain, dict, path), path)
    return _read_scalar(kind, plain, path)


def _read_tuple(arguments: tuple[Any, ...], plain: Any, path: str) -> tuple[Any, ...]:
    entries = _checked(plain, list, path)
    if len(arguments) == 2 and arguments[1] is ...:
        return tuple(
            _read(arguments[0], entry, f"{path}[{place}]") for place, entry in enumerate(entries)
        )
    if len(entries) != len(arguments):
        raise _unreadable(path, f"{len(arguments)} entries")
    return tuple(
        _read(kind, entry, f"{path}[{place}]")
        for place, (kind, entry) in enumerate(zip(arguments, entries, strict=True))
    )


def _read_fields(kind: type, plain: Mapping[str, Any], path: str) -> Any:
    hints = _hints(kind)
    unknown = sorted(set(plain) - set(hints))
    if unknown:
        raise _unreadable(f"{path}.{unknown[0]}", "a known field")
    values = {}
    for field in fields(kind):
        if field.name in plain:
            values[field.name] = _read(hints[field.name], plain[field.name], f"{path}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise _unreadable(f"{path}.{field.name}", "present")
    return kind(**values)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read_scalar(kind: Any, plain: Any, path: str) -> Any:
    try:
        if isinstance(kind, type) and issubclass(kind, Enum):
            return kind(plain)
        if kind is Fraction:
            return Fraction(_checked(plain, str, path))
    except ValueError as error:
        raise _unreadable(path, f"a {kind.__name__}") from error
    if kind is int and isinstance(plain, bool):
        raise _unreadable(path, "an int")
    return _checked(plain, kind, path)


def _checked(plain: Any, kind: type, path: str) -> Any:
    if not isinstance(plain, kind):
        raise _unreadable(path, f"a {kind.__name__}")
    return plain


def _unreadable(path: str, wanted: str) -> Invalid:
    return Invalid([Violation(path, "UNREADABLE", f"{path} is {wanted}")], "UNREADABLE_STATE")
