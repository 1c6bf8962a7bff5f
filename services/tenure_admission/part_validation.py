"""Texts, labels, names, lengths and spans → violations: limits that several messages share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from google.protobuf.duration_pb2 import Duration

from tenure.type.v1 import interval_pb2
from tenure_core.errors import Violation
from tenure_core.timebase import DAY_MS, SECOND_MS, Millis
from tenure_runtime.rpc.wire import span_to_millis, to_interval

LABEL_LENGTH_MAX: Final = 63

_NAME: Final = re.compile(r"leases/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def labels(field: str, wanted: Mapping[str, str], most: int) -> Iterator[Violation]:
    """Yield what is wrong with labels or attributes."""
    if len(wanted) > most:
        yield Violation(field, "TOO_MANY", f"has at most {most} items")
    for key, value in wanted.items():
        if not 1 <= len(key) <= LABEL_LENGTH_MAX or len(value) > LABEL_LENGTH_MAX:
            text_ = (
                f"has a key of 1 to {LABEL_LENGTH_MAX} characters and a value of at most as many"
            )
            yield Violation(f"{field}[{key[:64]}]", "LENGTH_OUT_OF_RANGE", text_)
        elif "\0" in key or "\0" in value:
            yield Violation(f"{field}[{key}]", "NUL_CHARACTER", "contains no NUL character")


def label(field: str, given: str) -> Iterator[Violation]:
    """Yield what is wrong with a project, pool or owner."""
    return text(field, given, LABEL_LENGTH_MAX)


def text(field: str, given: str, most: int) -> Iterator[Violation]:
    """Yield what is wrong with a text of at most `most` characters."""
    if len(given) > most:
        yield Violation(field, "LENGTH_OUT_OF_RANGE", f"has at most {most} characters")
    if "\0" in given:
        yield Violation(field, "NUL_CHARACTER", "contains no NUL character")


def length(field: str, given: Duration, least: Millis, most: Millis) -> Iterator[Violation]:
    """Yield what is wrong with a length of time; `least` and `most` in milliseconds."""
    if given.nanos % 1_000_000:
        yield Violation(field, "NOT_WHOLE_MILLISECONDS", "is in whole milliseconds")
    elif not least <= span_to_millis(given) <= most:
        text_ = f"is {least / SECOND_MS:g} s to {most / SECOND_MS:g} s"
        if most >= DAY_MS:
            text_ = f"is {least / SECOND_MS:g} s to {most / DAY_MS:g} days"
        yield Violation(field, "OUT_OF_RANGE", text_)


def interval(field: str, given: interval_pb2.Interval) -> Iterator[Violation]:
    """Yield what is wrong with a span."""
    try:
        to_interval(given)
    except ValueError:
        yield Violation(field, "INTERVAL_EMPTY", "ends after it starts")


def lease_name(field: str, given: str) -> Iterator[Violation]:
    """Yield what is wrong with the name of a lease."""
    if not _NAME.fullmatch(given):
        yield Violation(field, "NAME_INVALID", "is leases/{id}")
