"""A span as this process records it, and the W3C `traceparent` that names its place in a trace.

Decides what a span holds and how much of it: whoever sets facts on it may be repeating what a user
named. Where spans go is left to sinks, when one is opened to `tracing`.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

Attribute = str | int | float | bool
Kind = Literal["internal", "server", "client"]

LINKS_MAX: Final = 64
"""A cycle or a commit works on thousands of requests; its span names this many."""
TEXT_MAX: Final = 256

_FORM: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(slots=True)
class Recording:
    """One span. Ids are in hexadecimal, `parent` is empty at a root, instants are of the wall."""

    name: str
    kind: Kind
    trace: str
    id: str
    parent: str
    began_ns: int = field(default_factory=time.time_ns)
    ended_ns: int = 0
    attributes: dict[str, Attribute] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    failure: str = ""
    root: Recording | None = None
    """The first span of its trace in this process; None for that one itself."""

    @property
    def traceparent(self) -> str:
        """Return what names this span to others."""
        return f"00-{self.trace}-{self.id}-01"

    def set_attribute(self, key: str, value: Attribute, /) -> None:
        """Add a fact, its text cut to TEXT_MAX."""
        self.attributes[key] = value[:TEXT_MAX] if isinstance(value, str) else value

    def set_attributes(self, facts: Iterable[tuple[str, Attribute]]) -> None:
        """Add facts whose names are written with `_` and exported with `.`."""
        for key, value in facts:
            self.set_attribute(key.replace("_", "."), value)

    def link(self, traceparent: str) -> None:
        """Name a span of another trace that belongs to this one, up to LINKS_MAX of them."""
        if len(self.links) < LINKS_MAX and valid_traceparent(traceparent):
            self.links.append(traceparent)

    def fail(self, error: BaseException) -> None:
        """Mark it as failed by an error: its type, and its reason when it has one; never a text.

        Texts may hold what a user wrote or a database answered.
        """
        reason = getattr(error, "reason", "")
        kind = type(error).__name__
        self.failure = f"{kind} {reason}" if isinstance(reason, str) and reason else kind


Sink = Callable[[Recording], None]
"""Takes a span that has ended; it is called on the event loop and must not wait."""


def valid_traceparent(text: str | None) -> bool:
    """Say whether `text` is a W3C traceparent (version 00) with ids that are not all zero."""
    return text is not None and _FORM.fullmatch(text) is not None


def is_recorded(traceparent: str) -> bool:
    """Say whether whoever began the trace of a valid traceparent chose to record it."""
    return bool(int(traceparent[53:55], 16) & 1)


def new_span_id() -> str:
    """Return 16 hexadecimal digits that are not all zero."""
    return f"{random.getrandbits(64) or 1:016x}"  # needs to differ, not to be unguessable


def new_trace_id() -> str:
    """Return 32 hexadecimal digits that are not all zero."""
    return f"{random.getrandbits(128) or 1:032x}"
