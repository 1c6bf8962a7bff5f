"""What a service says of itself: its name, version, replica and schema."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from tenure.type.v1.service_info_pb2 import ServiceInfo
from tenure_core.timebase import Millis
from tenure_runtime.rpc.wire import to_timestamp

VERSION: Final = metadata.version("tenure")


def service_info(
    service: str, instance: str, started: Millis, schema_version: int = 0
) -> ServiceInfo:
    """Return the answer to GetServiceInfo; `schema_version` is 0 without a database."""
    return ServiceInfo(
        service=service,
        version=VERSION,
        schema_version=schema_version,
        instance=instance,
        start_time=to_timestamp(started),
    )
