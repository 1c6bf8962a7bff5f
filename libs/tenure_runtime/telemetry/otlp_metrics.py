"""Sends the metrics of this process to an OTLP collector, beside what Prometheus reads.

Decides names on that side (`tenure.<name>`, durations in seconds) and that all is cumulative since
the process began, so that a picture that is lost costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Exemplar as SdkExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Gauge as SdkGauge
from opentelemetry.sdk.metrics.export import Histogram as SdkHistogram
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tenure_runtime.telemetry.instruments import (
    Buckets,
    Counter,
    Gauge,
    Histogram,
    declared,
    observe,
)

SEND_PERIOD_S: Final = 15.0
_TIMEOUT_S: Final = 2
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class MetricsSender:
    """Takes pictures of all instruments and sends them; call it from the event loop."""

    def __init__(self, exporter: MetricExporter, resource: Resource | None = None) -> None:
        self._exporter = exporter
        self._resource = resource or Resource.get_empty()
        self._scope = InstrumentationScope("tenure")
        self._began_ns = time.time_ns()

    @classmethod
    def to(cls, endpoint: str, name: str, version: str) -> MetricsSender:
        """Return one that sends to a collector under the name of one service."""
        exporter = OTLPMetricExporter(
            endpoint=endpoint, insecure=not endpoint.startswith("https://"), timeout=_TIMEOUT_S
        )
        resource = Resource.create({"service.name": name, "service.version": version})
        return cls(exporter, resource)

    async def run_once(self) -> None:
        """Send one picture; the thread that sends it may wait for seconds."""
        await asyncio.to_thread(self._exporter.export, self._picture())

    async def close(self) -> None:
        """Send the last picture and let go of the collector. Takes a few seconds at most."""
        await self.run_once()
        await asyncio.to_thread(self._exporter.shutdown)

    def _picture(self) -> MetricsData:
        observe()
        now_ns = time.time_ns()
        metrics = [self._metric(each, now_ns) for each in declared() if each.values]
        scoped = ScopeMetrics(self._scope, metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scoped], "")])

    def _metric(self, instrument: Counter | Gauge | Histogram, now_ns: int) -> Metric:
        name, meaning = f"tenure.{instrument.name}", instrument.meaning
        if isinstance(instrument, Histogram):
            spread = [
                self._spread(self._facts(instrument, labels), instrument, buckets, now_ns)
                for labels, buckets in instrument.values.items()
            ]
            return Metric(name, meaning, "s", SdkHistogram(spread, _CUMULATIVE))
        points = [
            NumberDataPoint(self._facts(instrument, labels), self._began_ns, now_ns, float(value))
            for labels, value in instrument.values.items()
        ]
        if isinstance(instrument, Counter):
            return Metric(name, meaning, instrument.unit, Sum(points, _CUMULATIVE, True))
        return Metric(name, meaning, instrument.unit, SdkGauge(points))

    def _facts(
        self, instrument: Counter | Gauge | Histogram, labels: tuple[str, ...]
    ) -> Mapping[str, str]:
        return dict(zip(instrument.labels, labels, strict=True))

    def _spread(
        self, facts: Mapping[str, str], instrument: Histogram, buckets: Buckets, now_ns: int
    ) -> HistogramDataPoint:
        exemplars = [
            SdkExemplar(
                {},
                each.value_ms / 1_000,
                each.at_ns,
                int(each.traceparent[36:52], 16),
                int(each.traceparent[3:35], 16),
            )
            for each in buckets.exemplars.values()
        ]
        return HistogramDataPoint(
            facts,
            self._began_ns,
            now_ns,
            buckets.count,
            buckets.total / 1_000,
            list(buckets.counts),
            [bound_ms / 1_000 for bound_ms in instrument.bounds_ms],
            float("-inf"),
            float("inf"),
            exemplars,
        )
