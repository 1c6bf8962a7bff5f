"""Traces: spans, and the W3C `traceparent` that carries them between processes.

Decides which traces are recorded: whoever begins one decides (by `ratio`, and by how many a second
when they go to a store), and all who continue it follow the flag. Where nobody listens, or a trace
is not recorded, a span costs about a microsecond, a traceparent that came in is passed on, and
every call still has a trace id for its log lines. OpenTelemetry is loaded only for OTLP. What
deserves a span is left to the callers.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tenure_runtime.telemetry.spans import (
    Attribute,
    Kind,
    Recording,
    Sink,
    is_recorded,
    new_span_id,
    new_trace_id,
    valid_traceparent,
)

TRACEPARENT: Final = "traceparent"

STORED_TRACES_PER_S: Final = 50
"""How many traces a process begins a second when they go to a store on this machine."""


@dataclass(slots=True)
class _Place:
    """Where in a trace the work at hand is; `is_free` while no span has taken the span id."""

    traceparent: str
    recording: Recording | None = None
    is_free: bool = False


_at_hand: ContextVar[_Place | None] = ContextVar("tenure_trace", default=None)


class Span(Protocol):
    """What callers may do with the span at hand."""

    def set_attribute(self, key: str, value: Attribute, /) -> None:
        """Add a fact to the span."""
        ...


class _Silent:
    def set_attribute(self, key: str, value: Attribute, /) -> None:
        """Do nothing: no one listens."""


_SILENT: Final = _Silent()


class Sampler:
    """Chooses which traces that begin here are recorded: a share of them, and so many a second."""

    def __init__(
        self,
        ratio: float = 1.0,
        per_s: float = float("inf"),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ratio, self._per_s, self._monotonic = ratio, per_s, monotonic
        self._left, self._looked_at = per_s, monotonic()

    def chooses(self) -> bool:
        """Say whether the next trace is recorded."""
        if self._ratio < 1.0 and random.random() >= self._ratio:  # noqa: S311 - hides nothing
            return False
        now = self._monotonic()
        self._left = min(self._per_s, self._left + (now - self._looked_at) * self._per_s)
        self._looked_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(slots=True)
class _Recorder:
    """Where the spans of this process go."""

    sinks: tuple[Sink, ...]
    sampler: Sampler
    close: Callable[[], None]

    def take(self, span: Recording) -> None:
        span.ended_ns = max(time.time_ns(), span.began_ns)
        for sink in self.sinks:
            sink(span)


class _Process:
    recorder: _Recorder | None = None


def configure_tracing(
    service: str,
    endpoint: str | None,
    *,
    store: Path | None = None,
    ratio: float = 1.0,
    version: str = "",
) -> None:
    """Record spans to an OTLP gRPC `endpoint` (`http://host:4317`), a `store`, or both.

    With neither nothing changes. Both take spans in batches from threads of their own; a collector
    that is away costs nothing but the spans.
    """
    sinks: list[Sink] = []
    closers: list[Callable[[], None]] = []
    if endpoint:
        from tenure_runtime.telemetry.otlp import OtlpSink

        exporter = OtlpSink.to(endpoint, f"tenure-{service}", version)
        sinks.append(exporter)
        closers.append(exporter.close)
    if store is not None:
        from tenure_runtime.telemetry.span_store import StoreSink

        keeper = StoreSink(store, service)
        sinks.append(keeper)
        closers.append(keeper.close)
    if sinks:
        per_s = float("inf") if endpoint else STORED_TRACES_PER_S
        use_sinks(*sinks, sampler=Sampler(ratio, per_s), closers=closers)


def use_sinks(
    *sinks: Sink, sampler: Sampler | None = None, closers: Sequence[Callable[[], None]] = ()
) -> None:
    """Give spans to `sinks`, to nobody when there are none; tests pass one that keeps them."""

    def close() -> None:
        for each in closers:
            each()

    _Process.recorder = _Recorder(sinks, sampler or Sampler(), close) if sinks else None


def shutdown_tracing() -> None:
    """Hand over what is left and stop recording. Blocks for a few seconds at most."""
    if _Process.recorder is not None:
        recorder, _Process.recorder = _Process.recorder, None
        recorder.close()


def adopt(traceparent: str | None) -> str:
    """Continue the trace that came in with a call, or begin one when none did; return it."""
    if traceparent is not None and valid_traceparent(traceparent):
        _at_hand.set(_Place(traceparent))
        return traceparent
    place = _begun()
    _at_hand.set(place)
    return place.traceparent


def _begun() -> _Place:
    recorder = _Process.recorder
    # Without flag 01 it is only a name for log lines, here and further down.
    flags = "01" if recorder is not None and recorder.sampler.chooses() else "00"
    return _Place(f"00-{new_trace_id()}-{new_span_id()}-{flags}", is_free=True)


def current_traceparent() -> str:
    """Return the traceparent of the work at hand, or "" when it belongs to no trace."""
    place = _at_hand.get()
    return place.traceparent if place is not None else ""


def outer_traceparent() -> str:
    """Return the traceparent that this process was given by what is around it, or "".

    A span of the program's own OpenTelemetry, else $TRACEPARENT as a CI system or a lease sets it.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        context = api.get_current_span().get_span_context()
        if context.is_valid:
            flags = int(context.trace_flags)
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
    given = os.environ.get("TRACEPARENT")
    return given if given is not None and valid_traceparent(given) else ""


def current_trace_id() -> str:
    """Return the 32 hex digits of the trace at hand, or ""."""
    return current_traceparent()[3:35]


def recorded_traceparent() -> str:
    """Return the traceparent at hand where its trace is recorded here, else ""."""
    place = _at_hand.get()
    if place is None or _Process.recorder is None or not is_recorded(place.traceparent):
        return ""
    return place.traceparent


@contextmanager
def span(
    name: str,
    /,
    *,
    links: Sequence[str] = (),
    parent: str | None = None,
    kind: Kind = "internal",
    **attributes: Attribute,
) -> Iterator[Span]:
    """Run a block as a span named `noun.verb`; an exception marks the span as failed.

    `links` are traceparents of requests that caused this work (invalid ones are left out), `parent`
    one that it continues. Attribute names are written with `_` and exported with `.`.
    """
    recorder, place = _Process.recorder, _at_hand.get()
    if parent is not None:
        place = _Place(parent) if valid_traceparent(parent) else None
    elif recorder is None:
        yield _SILENT
        return
    if recorder is not None:
        place = place or _begun()
        if is_recorded(place.traceparent):
            recording = _opened(name, kind, place)
            recording.set_attributes(attributes.items())
            for link in links:
                recording.link(link)
            with _recorded(recorder, recording):
                yield recording
            return
    token = _at_hand.set(place)
    try:
        yield _SILENT
    finally:
        _at_hand.reset(token)


def _opened(name: str, kind: Kind, place: _Place) -> Recording:
    trace, above = place.traceparent[3:35], place.traceparent[36:52]
    if place.is_free:
        place.is_free = False
        return Recording(name, kind, trace, above, "")
    around = place.recording
    root = None if around is None else around.root or around
    return Recording(name, kind, trace, new_span_id(), above, root=root)


@contextmanager
def _recorded(recorder: _Recorder, recording: Recording) -> Iterator[None]:
    token = _at_hand.set(_Place(recording.traceparent, recording))
    try:
        yield
    except Exception as error:
        recording.fail(error)
        raise
    finally:
        _at_hand.reset(token)
        recorder.take(recording)


def touches(traceparents: Iterable[str]) -> None:
    """Link the span at hand to traces of requests that it works on; those unrecorded left out."""
    place = _at_hand.get()
    if place is not None and place.recording is not None:
        for text in traceparents:
            if valid_traceparent(text) and is_recorded(text):
                place.recording.link(text)


class EachTrace(Protocol):
    """Names one of the traces that a block of work is part of, with facts about that part."""

    def __call__(self, traceparent: str, /, **attributes: Attribute) -> None:
        """Note one; a traceparent that is not valid, or not recorded, is passed over."""
        ...


@contextmanager
def span_in_each(name: str, /) -> Iterator[EachTrace]:
    """Run a block as one span in each of the traces that it names, all of the block's length.

    For work on many requests at once (a commit, a dispatch): each request's trace shows its part,
    and the part and the span at hand, which has a trace of its own, are linked both ways. An
    exception marks the parts as failed.
    """
    recorder = _Process.recorder
    if recorder is None:
        yield _note_nothing
        return
    parts: list[Recording] = []
    whole = _at_hand.get()
    began_ns = time.time_ns()

    def note(traceparent: str, /, **attributes: Attribute) -> None:
        if not valid_traceparent(traceparent) or not is_recorded(traceparent):
            return
        part = _opened(name, "internal", _Place(traceparent))
        part.began_ns = began_ns
        part.set_attributes(attributes.items())
        if whole is not None:
            part.link(whole.traceparent)
            if whole.recording is not None:
                whole.recording.link(part.traceparent)
        parts.append(part)

    try:
        yield note
    except Exception as error:
        for part in parts:
            part.fail(error)
        raise
    finally:
        for part in parts:
            recorder.take(part)


def _note_nothing(_traceparent: str, /, **_attributes: Attribute) -> None:
    """Do nothing: no one listens."""
