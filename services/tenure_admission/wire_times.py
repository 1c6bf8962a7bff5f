"""Instants, lengths and spans that may be absent, for the wire; the rest is `tenure_runtime`'s."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tenure.type.v1 import interval_pb2
from tenure_core.timebase import Interval, Millis
from tenure_runtime.rpc.wire import from_interval, to_duration, to_timestamp


def timestamp(at: Millis | None) -> Timestamp | None:
    """Return the wire form of an instant, None for none."""
    return None if at is None else to_timestamp(at)


def duration(length: Millis | None) -> Duration | None:
    """Return the wire form of a length, None for none."""
    return None if length is None else to_duration(length)


def interval(span: Interval | None) -> interval_pb2.Interval | None:
    """Return the wire form of a span, None for none."""
    return None if span is None else from_interval(span)
