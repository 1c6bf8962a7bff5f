"""Every knob of the scheduler."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tenure_runtime.settings import ServiceSettings


class SchedulerSettings(ServiceSettings):
    """Settings of the scheduler, besides those of every service."""

    database_dsn: str = Field(description="PostgreSQL, libpq form")
    instance: str = Field("scheduler", description="name of this replica", max_length=63)
    admission_address: str = Field(description="host:port")
    slottable_address: str = Field(description="host:port")
    registry_address: str = Field(description="host:port")
    etcd_endpoints: str = Field("", description="host:port,…; empty: elections by a database row")
    etcd_user: str = ""
    etcd_password: str = Field("", repr=False)
    etcd_ca: Path | None = None
    etcd_certificate: Path | None = None
    etcd_private_key: Path | None = None
    election_ttl_s: int = Field(5, ge=2, le=300, description="how long a silent leader blocks")
    pools_period_s: float = Field(5, gt=0, le=300, description="how often pools are read anew")
