"""Chooses the elector that a service's settings ask for: etcd, or a row of its database."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from tenure_runtime.election.elector import Elector
from tenure_runtime.election.etcd import EtcdElector
from tenure_runtime.election.etcd_connection import EtcdSettings
from tenure_runtime.election.row import RowElector
from tenure_runtime.settings import ServiceSettings


class ElectionSettings(ServiceSettings):
    """Settings of a service whose replicas elect leaders, besides those of every service."""

    database_dsn: str = Field(description="PostgreSQL, postgresql://user@host/database")
    etcd_endpoints: str = Field("", description="host:port,…; empty: elections by a database row")
    etcd_user: str = ""
    etcd_password: str = Field("", repr=False)
    etcd_ca: Path | None = None
    etcd_certificate: Path | None = None
    etcd_private_key: Path | None = None
    election_ttl_s: int = Field(5, ge=2, le=300, description="how long a silent leader blocks")

    @property
    def election(self) -> str:
        """Return what decides elections, `etcd` or `row`."""
        return "etcd" if self.etcd_endpoints else "row"


def choose_elector(settings: ElectionSettings) -> Elector:
    """Return the elector; the caller closes it. Raises OSError for a file that cannot be read."""
    if settings.election == "row":
        return RowElector(settings.database_dsn, ttl_s=settings.election_ttl_s)
    etcd = EtcdSettings(
        tuple(settings.etcd_endpoints.split(",")),
        ca=_bytes(settings.etcd_ca),
        certificate=_bytes(settings.etcd_certificate),
        private_key=_bytes(settings.etcd_private_key),
        user=settings.etcd_user,
        password=settings.etcd_password,
    )
    return EtcdElector(etcd, ttl_s=settings.election_ttl_s)


def _bytes(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
