"""What admission counts, beside what every process does."""

from __future__ import annotations

from typing import Final

from tenure_runtime.telemetry.metrics import Counter, Gauge

LEASES_CREATED: Final = Counter("leases_created", "1", "Leases stored", ("call",))
TRANSITIONS: Final = Counter(
    "transitions", "1", "Transitions that leaders asked for, by verdict", ("verdict",)
)
NOTICES: Final = Counter(
    "notices", "1", "Attempts to deliver notices, by what became of them", ("channel", "outcome")
)
DRIFTED_ACCOUNTS: Final = Gauge(
    "ledger_drifted_accounts", "1", "Accounts whose usage is not the sum over charged leases", ()
)
QUOTA_FULLNESS: Final = Gauge(
    "quota_limits", "1", "Limits in force of which so large a share is used", ("dimension", "used")
)
