"""The registry's own instruments, with unit and meaning."""

from __future__ import annotations

from typing import Final

from tenure_runtime.telemetry.metrics import LONG_MS, Counter, Gauge, Histogram

BEATS: Final = Counter("registry_beats", "1", "Heartbeats received", ())
COMMANDS_SENT: Final = Counter("registry_commands_sent", "1", "Commands written to streams", ())
REPORTS: Final = Counter("registry_reports", "1", "Reports received, repeats included", ())
LOST: Final = Counter("registry_agents_lost", "1", "Agents declared lost", ())
REFUSED_STREAMS: Final = Counter(
    "registry_refused_streams", "1", "Streams ended because of what was sent", ("reason",)
)
BEAT_GAP: Final = Histogram(
    "registry_beat_gap", "Time between two heartbeats of an agent", (), LONG_MS
)
SILENCE: Final = Gauge(
    "registry_silence_seconds", "s", "How long the most silent agent here has said nothing", ()
)
COMMAND_LATENCY: Final = Histogram(
    "registry_command_latency", "Time from sending a command to its first report", ("verb",)
)
