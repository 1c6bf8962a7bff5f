"""Runs the agent: settings, then the app, until a signal."""

from __future__ import annotations

import asyncio
import sys

from tenure_agent.app import serve
from tenure_agent.settings import AgentSettings, SettingRefused
from tenure_runtime.service_info import VERSION
from tenure_runtime.telemetry.logging import configure_logging, get_logger
from tenure_runtime.telemetry.tracing import configure_tracing, shutdown_tracing


def main() -> int:
    """Run until SIGTERM or SIGINT; return the exit code."""
    if not __debug__:
        raise SystemExit("tenure does not run with -O: its assertions are needed")
    try:
        settings = AgentSettings.load()
    except SettingRefused as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging("agent", level=settings.log_level, form=settings.log_form)
    store = settings.trace_store
    configure_tracing("agent", settings.otlp_endpoint, store=store, version=VERSION)
    try:
        asyncio.run(serve(settings))
    except Exception as error:  # noqa: BLE001 - the edge of the process
        get_logger().error("process.failed", exc_info=error)
        return 1
    finally:
        shutdown_tracing()
    return 0


if __name__ == "__main__":
    sys.exit(main())
