"""Every knob of slottable."""

from __future__ import annotations

from pydantic import Field

from tenure_runtime.settings import ServiceSettings


class SlottableSettings(ServiceSettings):
    """Settings of slottable, besides those of every service."""

    database_dsn: str = Field(description="PostgreSQL, libpq form")
    instance: str = Field("slottable", description="name of this replica", max_length=63)
    feed_retention_s: float = Field(86_400, ge=60, description="how long changes can be resumed")
    history_retention_s: float = Field(
        604_800, ge=0, description="how long maintenance that is over stays in the table"
    )
    request_retention_s: float = Field(604_800, ge=86_400, description="how long repeats are known")
