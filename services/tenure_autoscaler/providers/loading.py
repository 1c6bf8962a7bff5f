"""Finds a provider by its name: ours, and what other packages offer as entry points.

An entry point of the group `tenure.autoscaler.providers` names a callable that takes the
autoscaler's settings and returns a `Provider`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Final

from tenure_autoscaler.providers.external import ExternalProvider
from tenure_autoscaler.providers.port import Provider
from tenure_autoscaler.providers.process import ProcessProvider
from tenure_autoscaler.providers.simulated import SimulatedProvider
from tenure_autoscaler.settings import AutoscalerSettings
from tenure_runtime.clocks import SystemClock

ENTRY_POINTS: Final = "tenure.autoscaler.providers"


def _simulated(_: AutoscalerSettings) -> Provider:
    return SimulatedProvider(SystemClock())


OURS: Final[dict[str, Callable[[AutoscalerSettings], Provider]]] = {
    "simulated": _simulated,
    "process": ProcessProvider.of,
    "external": ExternalProvider.of,
}


def load_provider(name: str, settings: AutoscalerSettings) -> Provider | None:
    """Return a new provider by its name, None when nobody offers it.

    Raises ValueError when the settings lack what it needs.
    """
    if name in OURS:
        return OURS[name](settings)
    for found in entry_points(group=ENTRY_POINTS, name=name):
        provider: Provider = found.load()(settings)
        return provider
    return None
