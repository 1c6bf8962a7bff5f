"""What slottable measures, beside what every process does."""

from __future__ import annotations

from typing import Final

from tenure_runtime.telemetry.metrics import Gauge

REVISION: Final = Gauge("table_revision", "1", "Revision that this replica wrote last", ("pool",))
