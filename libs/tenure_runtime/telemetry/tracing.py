"""Traces: spans, and the W3C `traceparent` that carries them between processes.

Decides when OpenTelemetry is loaded at all: only when an OTLP endpoint is configured. Without one a
span costs about a microsecond, a traceparent that came in is still passed on unchanged, and every
call still has a trace id for its log lines. What deserves a span is left to the callers.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, SpanContext, Tracer

TRACEPARENT: Final = "traceparent"
Attribute = str | int | float | bool
Kind = Literal["internal", "server", "client"]

_FORM: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
# The traceparent of the work at hand when OpenTelemetry is off.
_passed: ContextVar[str | None] = ContextVar("tenure_traceparent", default=None)


class Span(Protocol):
    """What callers may do with the span at hand."""

    def set_attribute(self, key: str, value: Attribute, /) -> None:
        """Add a fact to the span."""
        ...


class _Silent:
    def set_attribute(self, key: str, value: Attribute, /) -> None:
        """Do nothing: no one listens."""


class _Exporting:
    """Holds the provider of this process once tracing is configured."""

    provider: TracerProvider | None = None
    tracer: Tracer | None = None


_SILENT: Final = _Silent()


def configure_tracing(service: str, endpoint: str | None, *, version: str = "") -> None:
    """Start exporting spans to the OTLP gRPC `endpoint` (`http://host:4317`); None changes nothing.

    Spans are sent in batches from a thread of their own; a collector that is away costs nothing but
    the spans.
    """
    if not endpoint:
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": f"tenure-{service}", "service.version": version})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(
        endpoint=endpoint, insecure=not endpoint.startswith("https://"), timeout=2
    )
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1_000))
    use_provider(provider)


def use_provider(provider: TracerProvider | None) -> None:
    """Make spans through `provider`, or none at all; tests pass one that keeps spans in memory."""
    _Exporting.provider = provider
    _Exporting.tracer = provider.get_tracer("tenure") if provider else None


def shutdown_tracing() -> None:
    """Send what is left and stop exporting. Blocks for a few seconds at most."""
    if _Exporting.provider is not None:
        _Exporting.provider.force_flush(2_000)
        _Exporting.provider.shutdown()
        use_provider(None)


def valid_traceparent(text: str | None) -> bool:
    """Say whether `text` is a W3C traceparent (version 00) with ids that are not all zero."""
    match = _FORM.fullmatch(text or "")
    return match is not None and int(match[1], 16) != 0 and int(match[2], 16) != 0


def adopt(traceparent: str | None) -> str:
    """Continue the trace that came in with a call, or one of its own when none did; return it."""
    if not valid_traceparent(traceparent):
        # Only a name for the log lines: flags 00 say that nobody records it.
        traceparent = f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-00"
    assert traceparent is not None
    _passed.set(traceparent)
    return traceparent


def current_traceparent() -> str:
    """Return the traceparent of the work at hand, or "" when it belongs to no trace."""
    if _Exporting.tracer is not None:
        from opentelemetry import trace

        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            flags = int(context.trace_flags)
            return f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
    return _passed.get() or ""


def current_trace_id() -> str:
    """Return the 32 hex digits of the trace at hand, or ""."""
    return current_traceparent()[3:35]


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
    tracer = _Exporting.tracer
    if tracer is None:
        if parent is None:
            yield _SILENT
            return
        token = _passed.set(parent if valid_traceparent(parent) else None)
        try:
            yield _SILENT
        finally:
            _passed.reset(token)
        return
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        name,
        context=_context_of(parent),
        kind=SpanKind[kind.upper()],
        links=_links_of(links),
        attributes={key.replace("_", "."): value for key, value in attributes.items()},
    ) as recording:
        yield recording


class EachTrace(Protocol):
    """Names one of the traces that a block of work is part of, with facts about that part."""

    def __call__(self, traceparent: str, /, **attributes: Attribute) -> None:
        """Note one; a traceparent that is not valid is passed over."""
        ...


@contextmanager
def span_in_each(name: str, /) -> Iterator[EachTrace]:
    """Run a block as one span in each of the traces that it names, all of the block's length.

    For work on many requests at once (a commit, a dispatch): each request's trace shows its part,
    linked to the span at hand, which has a trace of its own. An exception marks them as failed.
    """
    tracer = _Exporting.tracer
    parts: list[tuple[str, dict[str, Attribute]]] = []

    def note(traceparent: str, /, **attributes: Attribute) -> None:
        if tracer is not None and valid_traceparent(traceparent):
            parts.append((traceparent, attributes))

    began_ns = time.time_ns() if tracer is not None else 0
    failed = True
    try:
        yield note
        failed = False
    finally:
        for traceparent, attributes in parts:
            _past_span(tracer, name, traceparent, began_ns, attributes, failed=failed)


def _past_span(
    tracer: Tracer | None,
    name: str,
    parent: str,
    began_ns: int,
    attributes: Mapping[str, Attribute],
    *,
    failed: bool,
) -> None:
    from opentelemetry.trace import Status, StatusCode

    assert tracer is not None
    past = tracer.start_span(
        name,
        context=_context_of(parent),
        links=_links_of([current_traceparent()]),
        attributes={key.replace("_", "."): value for key, value in attributes.items()},
        start_time=began_ns,
    )
    if failed:
        past.set_status(Status(StatusCode.ERROR))
    past.end()


def _span_context_of(traceparent: str) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    match = _FORM.fullmatch(traceparent)
    assert match is not None
    return SpanContext(
        int(match[1], 16),
        int(match[2], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(match[3], 16)),
    )


def _context_of(parent: str | None) -> Context | None:
    if parent is None:
        return None
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    if not valid_traceparent(parent) or parent.endswith("-00"):
        # A trace that nobody records further up is no reason not to record here.
        return Context()
    return set_span_in_context(NonRecordingSpan(_span_context_of(parent)), Context())


def _links_of(traceparents: Sequence[str]) -> list[Link]:
    from opentelemetry.trace import Link

    return [Link(_span_context_of(text)) for text in traceparents if valid_traceparent(text)]


def metadata_with_trace(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Return the metadata with the traceparent of the work at hand, if there is one."""
    traceparent = current_traceparent()
    return {**metadata, TRACEPARENT: traceparent} if traceparent else metadata
