"""Says of each setting of a process what it is, and where that comes from.

Asks the very sources that `ServiceSettings` reads, in their order; values under secret names are
never shown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

from pydantic_settings import (
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    TomlConfigSettingsSource,
)

from tenure_runtime.settings import PREFIX, ServiceSettings
from tenure_runtime.telemetry.logging import hide_secrets

DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in force. `origin` is `default` or what was read."""

    name: str
    value: str
    origin: str
    description: str

    @property
    def variable(self) -> str:
        """Return the environment's name for it."""
        return PREFIX + self.name.upper()


def settings_in_force(kind: type[ServiceSettings]) -> list[Setting]:
    """Return every setting that a process of this kind would have, started here and now.

    Raises SettingsRefused with every problem, as the process itself would.
    """
    settings = kind.load()
    said = _said_by_sources(kind)
    found = []
    for name, field in kind.model_fields.items():
        origin = next((origin for origin, values in said if name in values), DEFAULT)
        value = shown(name, getattr(settings, name))
        found.append(Setting(name, value, origin, field.description or ""))
    return found


def shown(name: str, value: object) -> str:
    """Return a value as text; empty for none, hidden when its name tells of a secret."""
    if value is None:
        return ""
    return str(hide_secrets(None, "", {name: str(value)})[name])


def _said_by_sources(kind: type[ServiceSettings]) -> list[tuple[str, dict[str, Any]]]:
    """Return what each source says, the one that wins first."""
    environment = EnvSettingsSource(kind)
    sources = kind.settings_customise_sources(
        kind,
        InitSettingsSource(kind, {}),
        environment,
        environment,
        SecretsSettingsSource(kind),
    )
    return [(_name(source), source()) for source in sources]


def _name(source: PydanticBaseSettingsSource) -> str:
    match source:
        case TomlConfigSettingsSource():
            return f"file {os.environ['TENURE_SETTINGS_FILE']}"
        case SecretsSettingsSource():
            return f"secrets folder {os.environ.get('TENURE_SECRETS_DIR', '')}"
        case EnvSettingsSource():
            return "environment"
        case _:
            return "argument"
