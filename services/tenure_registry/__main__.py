"""Runs the registry as a process: `python -m tenure_registry`."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tenure_registry.app import serve
from tenure_registry.settings import RegistrySettings
from tenure_runtime.process import run_service
from tenure_runtime.rpc.identity import Keyring
from tenure_runtime.service_info import VERSION
from tenure_runtime.settings import SettingsRefused


def main() -> int:
    """Serve until a signal; return the exit code."""
    # Thousands of open streams are a large heap that hardly changes: with Python's own thresholds
    # it is walked every few seconds, for a fifth of a second each time with 5,000 agents.
    gc.set_threshold(50_000, 20, 100)
    try:
        settings = RegistrySettings.load()
        keyring = Keyring.load(settings.keyring_file)
    except (SettingsRefused, OSError) as error:
        print(f"registry: {error}", file=sys.stderr)  # noqa: T201 - nothing is logged yet
        return 2

    @asynccontextmanager
    async def app() -> AsyncIterator[None]:
        async with serve(settings, keyring):
            yield

    return run_service("registry", settings, app, version=VERSION)


if __name__ == "__main__":
    sys.exit(main())
