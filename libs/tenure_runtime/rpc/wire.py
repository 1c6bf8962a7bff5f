"""Conversions that every service's `convert.py` needs: instants, spans and resource names."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.type.v1 import interval_pb2
from tenure_core.timebase import FOREVER, Interval, Millis


def bare(name: str) -> str:
    """Return the id in a resource name: `x` for `leases/x`, and for `x` itself."""
    return name.rpartition("/")[2]


def to_millis(timestamp: Timestamp) -> Millis:
    """Return a wire instant as milliseconds; what is finer is dropped."""
    return timestamp.seconds * 1_000 + timestamp.nanos // 1_000_000


def to_timestamp(instant: Millis) -> Timestamp:
    """Return milliseconds as a wire instant."""
    return Timestamp(seconds=instant // 1_000, nanos=instant % 1_000 * 1_000_000)


def span_to_millis(duration: Duration) -> Millis:
    """Return a wire duration as milliseconds; what is finer is dropped."""
    return duration.seconds * 1_000 + duration.nanos // 1_000_000


def to_duration(span_ms: Millis) -> Duration:
    """Return milliseconds, not negative, as a wire duration."""
    return Duration(seconds=span_ms // 1_000, nanos=span_ms % 1_000 * 1_000_000)


def to_interval(message: interval_pb2.Interval) -> Interval:
    """Return a wire span; an absent end is FOREVER. Raises ValueError for an empty one."""
    end = to_millis(message.end_time) if message.HasField("end_time") else FOREVER
    return Interval(to_millis(message.start_time), end)


def from_interval(interval: Interval) -> interval_pb2.Interval:
    """Return a span for the wire; FOREVER is an absent end."""
    end = None if interval.end >= FOREVER else to_timestamp(interval.end)
    return interval_pb2.Interval(start_time=to_timestamp(interval.start), end_time=end)
