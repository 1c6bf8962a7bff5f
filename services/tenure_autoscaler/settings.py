"""Every knob of the autoscaler."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tenure_runtime.settings import ServiceSettings


class AutoscalerSettings(ServiceSettings):
    """Settings of the autoscaler, besides those of every service."""

    keyring_file: Path = Field(description="API keys that are accepted (0600)")
    database_dsn: str = Field(description="PostgreSQL, postgresql://user@host/database")
    instance: str = Field("autoscaler", description="name of this replica", max_length=63)
    registry_address: str | None = Field(None, description="host:port of a registry")
    scheduler_address: str | None = Field(None, description="host:port of a scheduler")
    slottable_address: str | None = Field(None, description="host:port of slottable")
    decide_period_s: float = Field(5.0, ge=0.05, le=600, description="how often it decides")
    etcd_endpoints: str = Field("", description="host:port,…; empty: elections by a database row")
    etcd_user: str = ""
    etcd_password: str = Field("", repr=False)
    etcd_ca: Path | None = None
    etcd_certificate: Path | None = None
    etcd_private_key: Path | None = None
    election_ttl_s: int = Field(5, ge=2, le=300, description="how long a silent leader blocks")
    owner_mark: str = Field(
        "tenure", description="tells this installation's machines from all others", max_length=63
    )
    machine_keys_dir: Path | None = Field(
        None, description="folder of agents' keys, {machine}.key, for the provider `process`"
    )
    machine_data_dir: Path | None = Field(
        None, description="folder in which the provider `process` keeps its machines"
    )
    retention_ms: int = Field(
        7 * 86_400_000, ge=60_000, description="how long decisions are kept; the last of each stays"
    )
