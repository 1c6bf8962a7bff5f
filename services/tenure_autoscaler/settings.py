"""Every knob of the autoscaler."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from tenure_runtime.election.choosing import ElectionSettings
from tenure_runtime.rpc.transport import is_loopback


class AutoscalerSettings(ElectionSettings):
    """Settings of the autoscaler, besides those of every service with elections."""

    keyring_file: Path = Field(description="API keys that are accepted (0600)")
    instance: str = Field("autoscaler", description="name of this replica", max_length=63)
    registry_address: str | None = Field(None, description="host:port of a registry")
    scheduler_address: str | None = Field(None, description="host:port of a scheduler")
    slottable_address: str | None = Field(None, description="host:port of slottable")
    decide_period_s: float = Field(5.0, ge=0.05, le=600, description="how often it decides")
    owner_mark: str = Field(
        "tenure", description="tells this installation's machines from all others", max_length=63
    )
    machine_keys_dir: Path | None = Field(
        None, description="folder of agents' keys, {machine}.key, for the provider `process`"
    )
    machine_tls_dir: Path | None = Field(
        None, description="folder of their certificates, {machine}.crt, .key and authority.pem"
    )
    machine_data_dir: Path | None = Field(
        None, description="folder in which the provider `process` keeps its machines"
    )
    external_provider_address: str | None = Field(
        None, description="host:port of a program that serves tenure.provider.v1"
    )
    external_provider_key: str | None = Field(
        None, description="API key that this program asks for", repr=False
    )
    external_provider_authority: Path | None = Field(
        None, description="whom to trust there (PEM); unset: plain text, on this machine only"
    )
    retention_ms: int = Field(
        7 * 86_400_000, ge=60_000, description="how long decisions are kept; the last of each stays"
    )

    @model_validator(mode="after")
    def _keeps_the_providers_key(self) -> Self:
        """Refuse to send a key in plain text to another machine."""
        address = self.external_provider_address
        if address and not (
            self.external_provider_authority or self.plaintext or is_loopback(address)
        ):
            raise ValueError(
                "external_provider_address is another machine's: set external_provider_authority"
            )
        return self
