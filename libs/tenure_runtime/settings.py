"""Settings of a process: from the environment, a TOML file and secret files, checked at once.

Decides names and precedence: arguments, `TENURE_<FIELD>` in the environment, files in
TENURE_SECRETS_DIR (`tenure_<field>`), the TOML file named by TENURE_SETTINGS_FILE, defaults.
Unknown keys in the file are refused, and so are misspelt `TENURE_…` variables. Each knob's meaning,
unit and limits are left to the service's own subclass.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from tenure_core.audit.retention import TrailLimits
from tenure_runtime.rpc.transport import TlsFiles, is_loopback

PREFIX = "TENURE_"
_OWN = {"TENURE_SETTINGS_FILE", "TENURE_SECRETS_DIR"}


class SettingsRefused(Exception):
    """A setting is missing, misspelt or out of range; the message says which and what is right."""


class ServiceSettings(BaseSettings):
    """What every service can be told. Subclass it, one `settings.py` a service."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        case_sensitive=False,
        validate_default=True,
    )

    listen: str = Field("127.0.0.1:0", description="host:port to serve on; port 0 takes a free one")
    keyring_file: Path | None = Field(None, description="API keys that are accepted (0600)")
    api_key: str | None = Field(None, description="key shown to other services")
    admission_address: str | None = Field(
        None, description="host:port of admission, which issues tokens; unset: keyring keys only"
    )
    calls_per_s: float | None = Field(
        None, gt=0, le=1_000_000, description="calls of one identity, twice as many at once"
    )
    ready_file: Path | None = Field(None, description="written (JSON) once the process serves")
    grace_s: float = Field(5.0, ge=0, le=300, description="time for open calls at a stop")
    metrics_listen: str | None = Field(None, description="host:port of GET /metrics; unset: none")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_form: Literal["json", "console"] = "json"
    otlp_endpoint: str | None = Field(
        default_factory=lambda: os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="OTLP gRPC collector, http://host:4317; unset: spans are sent nowhere",
    )
    otlp_metrics_endpoint: str | None = Field(
        default_factory=lambda: os.environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        description="OTLP gRPC collector of metrics; unset: they are sent nowhere",
    )
    trace_store: Path | None = Field(None, description="file that keeps spans on this machine")
    trace_ratio: float = Field(
        1.0, ge=0, le=1, description="share of the traces begun here that are recorded"
    )
    audit_retention_s: float = Field(
        31_536_000, ge=3_600, description="how long entries of the audit trail are kept"
    )
    audit_bytes_max: int = Field(
        10 * 2**30, ge=2**20, description="size of the audit trail, the oldest entries going first"
    )
    tls_certificate: Path | None = None
    tls_private_key: Path | None = None
    tls_authority: Path | None = Field(None, description="set it to demand client certificates")
    plaintext: bool = Field(False, description="serve without TLS for other machines, too")

    @property
    def trail_limits(self) -> TrailLimits:
        """Return how much of the audit trail is kept."""
        return TrailLimits(int(self.audit_retention_s * 1_000), self.audit_bytes_max)

    @property
    def tls(self) -> TlsFiles | None:
        """Return the TLS files to serve with, or None for plain text."""
        if self.tls_certificate is None or self.tls_private_key is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_private_key, self.tls_authority)

    @property
    def client_tls(self) -> TlsFiles | None:
        """Return the TLS files to call others with, or None for plain text."""
        if self.tls_authority is None:
            return None
        return TlsFiles(self.tls_certificate, self.tls_private_key, self.tls_authority)

    @model_validator(mode="after")
    def _has_both_halves(self) -> Self:
        """Refuse a certificate without its key and a key without its certificate."""
        if (self.tls_certificate is None) != (self.tls_private_key is None):
            raise ValueError("tls_certificate and tls_private_key are set together or not at all")
        return self

    @model_validator(mode="after")
    def _is_not_open(self) -> Self:
        """Refuse to serve other machines in plain text, unless that was asked for."""
        if self.tls is None and not self.plaintext and not is_loopback(self.listen):
            raise ValueError(
                f"{self.listen} can be reached from other machines: set tls_certificate, "
                "tls_private_key and tls_authority (or plaintext, to serve without TLS)"
            )
        return self

    @classmethod
    def load(cls, **given: Any) -> Self:
        """Return the settings, or raise SettingsRefused with every problem in one message."""
        refuse_misspelt(cls.model_fields.keys())
        try:
            return cls(**given)
        except ValidationError as error:
            raise SettingsRefused("\n".join(_sentences(error))) from None

    @classmethod
    def load_or_exit(cls, **given: Any) -> Self:
        """Return the settings, or end the process (exit code 2) with what is wrong on stderr.

        For `__main__` only.
        """
        try:
            return cls.load(**given)
        except SettingsRefused as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(2) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return where values come from, the first winning."""
        del dotenv_settings
        sources = [init_settings, env_settings, _secrets(settings_cls, file_secret_settings)]
        named = os.environ.get("TENURE_SETTINGS_FILE")
        if named:
            if not Path(named).is_file():
                raise SettingsRefused(f"TENURE_SETTINGS_FILE names {named}, which is no file")
            sources.append(TomlConfigSettingsSource(settings_cls, Path(named)))
        return tuple(sources)


def _sentences(error: ValidationError) -> Iterator[str]:
    """Yield a sentence for each problem; values are left out, for they may be secrets."""
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        path = ".".join(str(part) for part in problem["loc"])
        name = f"{path} (TENURE_{path.upper().replace('.', '__')})" if path else "settings"
        yield f"{name}: {problem['msg']}"


def _secrets(
    settings_cls: type[BaseSettings], default: PydanticBaseSettingsSource
) -> PydanticBaseSettingsSource:
    from pydantic_settings import SecretsSettingsSource

    folder = os.environ.get("TENURE_SECRETS_DIR")
    return SecretsSettingsSource(settings_cls, secrets_dir=folder) if folder else default


def refuse_misspelt(fields: Any) -> None:
    """Raise SettingsRefused when a `TENURE_…` variable looks like a misspelt setting.

    Variables that resemble no setting belong to other processes and are left alone.
    """
    known = {PREFIX + field.upper() for field in fields} | _OWN
    wrong = []
    for name in os.environ:
        if not name.startswith(PREFIX) or name.partition("__")[0] in known:
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
        if close:
            wrong.append(f"{name} is no setting; did you mean {close[0]}?")
    if wrong:
        raise SettingsRefused("\n".join(wrong))
