"""Every knob of admission."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tenure_admission.oidc import OidcSettings
from tenure_admission.signing import SigningTimes
from tenure_runtime.sealing import SecretKeys
from tenure_runtime.settings import ServiceSettings


class AdmissionSettings(ServiceSettings):
    """Settings of admission, besides those of every service."""

    database_dsn: str = Field(description="PostgreSQL, libpq form")
    instance: str = Field("admission", description="name of this replica", max_length=63)
    slottable_address: str | None = Field(None, description="host:port of slottable")
    scheduler_address: str | None = Field(None, description="host:port of a scheduler")
    pools_period_s: float = Field(2.0, ge=0.1, le=60, description="how often nodes are looked at")
    feed_retention_s: float = Field(86_400, ge=60, description="how long changes can be resumed")
    notices_private: bool = Field(
        False, description="whether webhooks may lead to private addresses of this network"
    )
    smtp_address: str | None = Field(None, description="host:port of the mail server; unset: none")
    smtp_from: str = Field("tenure@localhost", description="sender of mails", max_length=254)
    smtp_encryption: Literal["none", "starttls", "tls"] = "starttls"
    smtp_user: str | None = Field(None, description="name at the mail server, with smtp_password")
    smtp_password: str | None = Field(None, description="password at the mail server")
    token_lifetime_s: float = Field(
        300, ge=60, le=3_600, description="how long a token lasts, and a withdrawn key with it"
    )
    signing_key_period_s: float = Field(
        86_400, ge=600, le=2_592_000, description="how long one key signs tokens"
    )
    oidc: OidcSettings | None = Field(None, description="an issuer whose tokens are taken as well")
    secret_keys_file: Path | None = Field(
        None, description="keys for secrets of leases (0600); unset: leases may have none"
    )
    lease_retention_s: float = Field(
        7_776_000, ge=604_800, description="how long leases are kept after their end"
    )
    ended_leases_max: int = Field(
        5_000_000, ge=1_000, description="ended leases that are kept, the oldest going first"
    )
    request_retention_s: float = Field(604_800, ge=86_400, description="how long repeats are known")

    @property
    def secret_keys(self) -> SecretKeys | None:
        """Return the keys for secrets of leases. Raises ValueError, OSError for a bad file."""
        return None if self.secret_keys_file is None else SecretKeys.load(self.secret_keys_file)

    @property
    def lease_retention_ms(self) -> int:
        """Return how long leases are kept after their end."""
        return int(self.lease_retention_s * 1_000)

    @property
    def signing_times(self) -> SigningTimes:
        """Return how long tokens last and keys sign."""
        return SigningTimes(
            int(self.token_lifetime_s * 1_000), int(self.signing_key_period_s * 1_000)
        )
