"""Refuses what no service can store or show, whatever the call is about.

What protobuf's parser lets through or answers in words of its own: bytes that are no message of
the call, instants and spans outside the range that their types define (they overflow databases,
and a client that prints one as JSON fails), NUL characters in texts (PostgreSQL takes none), and
texts and lists of enum values beyond any use. What a field means, and the narrower limit that most
have, is left to each service's validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
        if _is_fine(message, _plan(message.DESCRIPTOR)):
            return message
        return Refused(list(_faults(message, "")))

    return read


def well_formed(request: object) -> None:
    """Raise Invalid INVALID_REQUEST if a request was refused when it was read."""
    if isinstance(request, Refused):
        raise Invalid(request.violations)


@dataclass(slots=True)
class _Plan:
    """Names of a message's fields by how each is looked at; numbers and bytes are always fine.

    Plans refer to plans, so that messages may contain themselves. What our contracts do not have
    yet (lists of times, maps of messages) is `rare`, and looked at in full.
    """

    texts: list[str] = field(default_factory=list)
    times: list[tuple[str, Callable[[Any], bool]]] = field(default_factory=list)
    messages: list[tuple[str, _Plan]] = field(default_factory=list)
    lists_of_texts: list[str] = field(default_factory=list)
    lists_of_values: list[str] = field(default_factory=list)
    lists: list[tuple[str, _Plan]] = field(default_factory=list)
    maps_of_texts: list[tuple[str, bool]] = field(default_factory=list)
    has_many: bool = False
    has_rare: bool = False


_plans: Final[dict[str, _Plan]] = {}


def _plan(descriptor: Descriptor) -> _Plan:
    known = _plans.get(descriptor.full_name)
    if known is not None:
        return known
    plan = _plans[descriptor.full_name] = _Plan()
    for each in descriptor.fields:
        _add(plan, each)
    plan.has_many = bool(
        plan.lists_of_texts
        or plan.lists_of_values
        or plan.lists
        or plan.maps_of_texts
        or plan.has_rare
    )
    return plan


def _add(plan: _Plan, each: FieldDescriptor) -> None:
    kind = each.message_type
    if kind is None:
        if each.type == FieldDescriptor.TYPE_STRING:
            (plan.lists_of_texts if each.is_repeated else plan.texts).append(each.name)
        elif each.type == FieldDescriptor.TYPE_ENUM and each.is_repeated:
            plan.lists_of_values.append(each.name)
    elif kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        if key.type == FieldDescriptor.TYPE_STRING and value.message_type is None:
            has_texts = value.type == FieldDescriptor.TYPE_STRING
            plan.maps_of_texts.append((each.name, has_texts))
        else:
            plan.has_rare = True
    elif each.is_repeated and kind.full_name in _TIMES:
        plan.has_rare = True
    elif each.is_repeated:
        plan.lists.append((each.name, _plan(kind)))
    elif kind.full_name in _TIMES:
        plan.times.append((each.name, _TIMES[kind.full_name]))
    else:
        plan.messages.append((each.name, _plan(kind)))


def _is_fine(message: Any, plan: _Plan) -> bool:
    """Say whether a message is well formed.

    Every request pays for this, so it is plain loops: some 10 µs for a usual lease.
    """
    for name in plan.texts:
        text = getattr(message, name)
        if "\0" in text or len(text) > TEXT_MAX:
            return False
    for name, is_in_range in plan.times:
        if message.HasField(name) and not is_in_range(getattr(message, name)):
            return False
    for name, inner in plan.messages:
        if message.HasField(name) and not _is_fine(getattr(message, name), inner):
            return False
    return not plan.has_many or _are_fine(message, plan)


def _are_fine(message: Any, plan: _Plan) -> bool:
    for name in plan.lists_of_texts:
        for text in getattr(message, name):
            if "\0" in text or len(text) > TEXT_MAX:
                return False
    for name in plan.lists_of_values:
        if len(getattr(message, name)) > VALUES_MAX:
            return False
    for name, inner in plan.lists:
        for each in getattr(message, name):
            if not _is_fine(each, inner):
                return False
    for name, has_texts in plan.maps_of_texts:
        values = getattr(message, name)
        for key in values:
            if "\0" in key or len(key) > TEXT_MAX:
                return False
            if has_texts and ("\0" in values[key] or len(values[key]) > TEXT_MAX):
                return False
    return not plan.has_rare or not any(True for _ in _faults(message, ""))


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


_TIMES: Final[dict[str, Callable[[Any], bool]]] = {
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
