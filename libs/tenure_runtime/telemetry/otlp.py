"""Sends spans to an OTLP collector through OpenTelemetry's SDK.

The only module that loads OpenTelemetry: the SDK batches, sends and drops; what a span is, and
which are recorded, is decided here.
"""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tenure_runtime.telemetry.spans import Recording


class OtlpSink:
    """Hands spans to a processor of the SDK under the name of one service."""

    def __init__(self, processor: SpanProcessor, resource: Resource | None = None) -> None:
        self._processor = processor
        self._resource = resource or Resource.get_empty()
        self._scope = InstrumentationScope("tenure")

    @classmethod
    def to(cls, endpoint: str, name: str, version: str) -> OtlpSink:
        """Return one that sends to a collector, in batches from a thread of its own."""
        exporter = OTLPSpanExporter(
            endpoint=endpoint, insecure=not endpoint.startswith("https://"), timeout=2
        )
        resource = Resource.create({"service.name": name, "service.version": version})
        return cls(BatchSpanProcessor(exporter, schedule_delay_millis=1_000), resource)

    def __call__(self, span: Recording) -> None:
        """Take a span that has ended."""
        parent = _context(span.trace, span.parent, is_remote=False) if span.parent else None
        self._processor.on_end(
            ReadableSpan(
                span.name,
                _context(span.trace, span.id, is_remote=False),
                parent,
                self._resource,
                span.attributes,
                links=[Link(_context(text[3:35], text[36:52])) for text in span.links],
                kind=SpanKind[span.kind.upper()],
                status=Status(StatusCode.ERROR, span.failure) if span.failure else Status(),
                start_time=span.began_ns,
                end_time=span.ended_ns,
                instrumentation_scope=self._scope,
            )
        )

    def close(self) -> None:
        """Send what is left. Blocks for a few seconds at most."""
        self._processor.force_flush(2_000)
        self._processor.shutdown()


def _context(trace: str, span: str, *, is_remote: bool = True) -> SpanContext:
    return SpanContext(
        int(trace, 16), int(span, 16), is_remote, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
