"""What the registry can be told: every knob with its type, unit, default and limits."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from tenure_core.agents.intake import IntakeLimits
from tenure_core.agents.loss import LossTiming
from tenure_core.resources import ResourceVector
from tenure_runtime.settings import ServiceSettings


class RegistrySettings(ServiceSettings):
    """Settings of one registry process; environment names are `TENURE_` and the field's."""

    keyring_file: Path = Field(description="API keys that are accepted (0600)")
    database_dsn: str = Field(description="PostgreSQL, postgresql://user@host/database")
    database_connections: int = Field(8, ge=4, le=64, description="connections of this process")
    instance: str = Field(
        default_factory=lambda: f"registry-{socket.gethostname()}-{os.getpid()}",
        min_length=1,
        max_length=100,
        description="name of this replica, unique among those that run",
    )
    heartbeat_period_ms: int = Field(1_000, ge=20, le=60_000, description="time between beats")
    fence_ms: int = Field(6_000, ge=100, le=600_000, description="agents end work after this long")
    loss_ms: int = Field(10_000, ge=150, le=900_000, description="agents are given up after this")
    replica_loss_ms: int = Field(
        60_000, ge=1_000, le=600_000, description="silence after which replicas take over agents"
    )
    retention_ms: int = Field(
        86_400_000, ge=60_000, description="how long reports and what ended are kept"
    )
    capacity_max: str = Field(
        "cpu=4096,gpu=1024,memory=256Ti,disk=4Pi",
        description="the most one agent is believed to have",
    )
    stream_burst_bytes: int = Field(
        8 * 1024 * 1024, ge=64 * 1024, description="what a stream may send at once"
    )
    stream_bytes_per_s: int = Field(
        1024 * 1024, ge=1024, description="what a stream may send a second, steadily"
    )

    @property
    def timing(self) -> LossTiming:
        """Return the lengths that decide about losses. Raises ValueError unless they grow."""
        return LossTiming(self.heartbeat_period_ms, self.fence_ms, self.loss_ms)

    @property
    def limits(self) -> IntakeLimits:
        """Return what one stream may send."""
        return IntakeLimits(self.stream_burst_bytes, self.stream_bytes_per_s)

    @property
    def capacity_limits(self) -> ResourceVector:
        """Return the most that one agent is believed to have."""
        return ResourceVector.parse(self.capacity_max)

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse lengths in the wrong order and amounts that cannot be read."""
        _ = self.timing, self.capacity_limits
        return self
