"""The registry's own instruments, with unit and meaning."""

from __future__ import annotations

from typing import Final

from tenure_runtime.telemetry.metrics import Counter

BEATS: Final = Counter("registry_beats", "1", "Heartbeats received", ())
COMMANDS_SENT: Final = Counter("registry_commands_sent", "1", "Commands written to streams", ())
REPORTS: Final = Counter("registry_reports", "1", "Reports received, repeats included", ())
LOST: Final = Counter("registry_agents_lost", "1", "Agents declared lost", ())
REFUSED_STREAMS: Final = Counter(
    "registry_refused_streams", "1", "Streams ended because of what was sent", ("reason",)
)
