"""The instruments that every process has, declared in one place with unit and meaning.

Decides names, units and label sets (labels come from closed sets only). A service declares its own
in a `metrics.py` beside its `app.py`. How they are kept is left to `instruments`, how they are read
to `exposition`.
"""

from __future__ import annotations

from typing import Final

from tenure_runtime.telemetry.instruments import LONG_MS as LONG_MS
from tenure_runtime.telemetry.instruments import Counter as Counter
from tenure_runtime.telemetry.instruments import Gauge as Gauge
from tenure_runtime.telemetry.instruments import Histogram as Histogram

CALLS: Final = Histogram("rpc_duration", "Time to serve a call", ("method", "code"))
LOOP_RUNS: Final = Histogram("loop_duration", "Time of one run of a loop", ("loop", "outcome"))
TRANSACTION_RETRIES: Final = Counter(
    "transaction_retries", "1", "Transactions begun again after a serialization failure", ()
)
GROUP_SIZE: Final = Counter("group_commit_items", "1", "Items committed in groups", ("batcher",))
GROUPS: Final = Counter("group_commits", "1", "Transactions that committed groups", ("batcher",))
LOOP_LAG: Final = Histogram("event_loop_lag", "How late the event loop ran what was due", ())
CONNECTIONS: Final = Gauge(
    "database_connections", "1", "Connections of the pool to the database", ("state",)
)
CONNECTIONS_MAX: Final = Gauge(
    "database_connections_max", "1", "Connections that the pool may open", ()
)
CONNECTION_WAIT: Final = Histogram("database_wait", "Time until a connection was free", ())
FEED_HELD_BACK: Final = Gauge(
    "feed_held_back_seconds",
    "s",
    "How long changes have waited for an older transaction to end",
    ("feed",),
)
WATCHERS: Final = Gauge("watchers", "1", "Streams that follow a feed", ("feed",))
WATCHERS_CUT_OFF: Final = Counter("watchers_cut_off", "1", "Watchers that did not keep up", ())
AUDIT_SEALED: Final = Counter("audit_entries_sealed", "1", "Entries sealed in the audit chain", ())
AUDIT_DROPPED: Final = Counter("audit_entries_dropped", "1", "Entries dropped by retention", ())
SPANS_DROPPED: Final = Counter("spans_dropped", "1", "Spans that could not be stored", ())
CREDENTIALS_REFUSED: Final = Counter(
    "credentials_refused", "1", "Calls with a wrong key or token", ()
)


def record_call(method: str, code: str, duration_ms: float) -> None:
    """Count one served call."""
    CALLS.record(duration_ms, method, code)
