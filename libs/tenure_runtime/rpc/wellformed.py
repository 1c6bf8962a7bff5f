"""Refuses what no service can store or show, whatever the call is about.

What protobuf's parser lets through or answers in words of its own: bytes that are no message of
the call, instants and spans outside the range that their types define (they overflow databases,
and a client that prints one as JSON fails), NUL characters in texts (PostgreSQL takes none), and
texts and lists of enum values beyond any use. What a field means, and the narrower limit that most
have, is left to each service's validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from tenure_core.errors import Invalid, Violation

TIMESTAMP_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
"""0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z, as `google.protobuf.Timestamp` defines it."""
DURATION_SECONDS_MAX: Final = 315_576_000_000
"""10,000 years, as `google.protobuf.Duration` defines it."""
NANOS: Final = 1_000_000_000
TEXT_MAX: Final = 256 * 1024
"""Characters of any one text: tokens, etags and all that no validation limits more narrowly."""
VALUES_MAX: Final = 100
"""Values in a list of enum values; no enum has so many."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Stands in the place of a request that is not well formed, with what is wrong with it."""

    violations: Sequence[Violation]


def reading(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a deserializer that never raises: what is not well formed becomes a Refused."""

    def read(data: bytes) -> Any:
        try:
            message = parse(data)
        except DecodeError:
            text = "is no message of this call: bytes that cannot be read, or a text not in UTF-8"
            return Refused([Violation("request", "MESSAGE_MALFORMED", text)])
        if _is_fine(message, _checks(message.DESCRIPTOR)):
            return message
        return Refused(list(_faults(message, "")))

    return read


def well_formed(request: object) -> None:
    """Raise Invalid INVALID_REQUEST if a request was refused when it was read."""
    if isinstance(request, Refused):
        raise Invalid(request.violations)


# How each field of a message is looked at, by its descriptor; numbers and bytes are always fine.
# Checks refer to those of other messages, so that messages may contain themselves.
_Check = Callable[[Any], bool]
_Checks = dict[FieldDescriptor, _Check]

_known: Final[dict[str, _Checks]] = {}


def _checks(descriptor: Descriptor) -> _Checks:
    known = _known.get(descriptor.full_name)
    if known is not None:
        return known
    checks = _known[descriptor.full_name] = {}
    for each in descriptor.fields:
        check = _check(each)
        if check is not None:
            checks[each] = check
    return checks


def _check(each: FieldDescriptor) -> _Check | None:
    kind = each.message_type
    if kind is None:
        if each.type == FieldDescriptor.TYPE_STRING:
            return _are_texts if each.is_repeated else _is_text
        return _are_few if each.type == FieldDescriptor.TYPE_ENUM and each.is_repeated else None
    if kind.GetOptions().map_entry:
        return _check_of_map(kind.fields_by_name["key"], kind.fields_by_name["value"])
    one = _TIMES.get(kind.full_name) or _check_of_message(_checks(kind))
    return _check_of_each(one) if each.is_repeated else one


def _check_of_map(key: FieldDescriptor, value: FieldDescriptor) -> _Check | None:
    of_key, of_value = _check(key), _check(value)

    def check(given: Any) -> bool:
        for each in given:
            if of_key is not None and not of_key(each):
                return False
            if of_value is not None and not of_value(given[each]):
                return False
        return True

    return None if of_key is None and of_value is None else check


def _check_of_message(checks: _Checks) -> _Check:
    return lambda message: not checks or _is_fine(message, checks)


def _check_of_each(one: _Check) -> _Check:
    return lambda given: all(map(one, given))


def _is_fine(message: Any, checks: _Checks) -> bool:
    """Say whether a message is well formed.

    Every request pays for this, so only what is set is looked at: some 6 µs for a usual lease.
    """
    for each, value in message.ListFields():
        check = checks.get(each)
        if check is not None and not check(value):
            return False
    return True


def _is_text(text: str) -> bool:
    return "\0" not in text and len(text) <= TEXT_MAX


def _are_texts(texts: Any) -> bool:
    return all(map(_is_text, texts))


def _are_few(values: Any) -> bool:
    return len(values) <= VALUES_MAX


def _is_instant(value: Timestamp) -> bool:
    least, most = TIMESTAMP_SECONDS
    return least <= value.seconds <= most and 0 <= value.nanos < NANOS


def _is_span(value: Duration) -> bool:
    seconds, nanos = value.seconds, value.nanos
    return (
        -DURATION_SECONDS_MAX <= seconds <= DURATION_SECONDS_MAX
        and -NANOS < nanos < NANOS
        and seconds * nanos >= 0
    )


_TIMES: Final[dict[str, _Check]] = {
    Timestamp.DESCRIPTOR.full_name: _is_instant,
    Duration.DESCRIPTOR.full_name: _is_span,
}


def _faults(message: Message, path: str) -> Iterator[Violation]:
    """Yield everything that is not fine, with its path."""
    for each, value in message.ListFields():
        kind = each.message_type
        here = f"{path}{each.name}"
        if kind is not None and kind.GetOptions().map_entry:
            for key, item in value.items():
                yield from _fault(key, f"{here} (a key)")
                yield from _fault(item, f"{here}[{str(key)[:64]}]")
        elif each.is_repeated and each.type == FieldDescriptor.TYPE_ENUM:
            if len(value) > VALUES_MAX:
                yield Violation(here, "TOO_MANY", f"has at most {VALUES_MAX} values")
        elif each.is_repeated:
            for index, item in enumerate(value):
                yield from _fault(item, f"{here}[{index}]")
        else:
            yield from _fault(value, here)


def _fault(value: Any, path: str) -> Iterator[Violation]:
    if isinstance(value, str) and "\0" in value:
        yield Violation(path, "NUL_CHARACTER", "contains no NUL character")
    elif isinstance(value, str) and len(value) > TEXT_MAX:
        yield Violation(path, "TOO_LONG", f"has at most {TEXT_MAX:,} characters")
    elif isinstance(value, Timestamp) and not _is_instant(value):
        text = f"is an instant of the years 1 to 9999, with 0 to {NANOS - 1} nanoseconds"
        yield Violation(path, "TIME_MALFORMED", text)
    elif isinstance(value, Duration) and not _is_span(value):
        text = (
            f"is at most 10,000 years, with seconds and up to {NANOS - 1} nanoseconds of one sign"
        )
        yield Violation(path, "TIME_MALFORMED", text)
    elif isinstance(value, Message):
        yield from _faults(value, f"{path}.")
