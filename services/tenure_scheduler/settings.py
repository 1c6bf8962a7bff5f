"""Every knob of the scheduler."""

from __future__ import annotations

from pydantic import Field

from tenure_runtime.election.choosing import ElectionSettings


class SchedulerSettings(ElectionSettings):
    """Settings of the scheduler, besides those of every service with elections."""

    instance: str = Field("scheduler", description="name of this replica", max_length=63)
    admission_address: str = Field(description="host:port")
    slottable_address: str = Field(description="host:port")
    registry_address: str = Field(description="host:port")
    pools_period_s: float = Field(5, gt=0, le=300, description="how often pools are read anew")
