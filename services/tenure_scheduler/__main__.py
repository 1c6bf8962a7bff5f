"""`python -m tenure_scheduler`: settings, then serve."""

from __future__ import annotations

import sys

from tenure_runtime.process import run_service
from tenure_runtime.service_info import VERSION
from tenure_scheduler.app import app
from tenure_scheduler.settings import SchedulerSettings


def main() -> int:
    """Run the scheduler until it is told to stop."""
    settings = SchedulerSettings.load_or_exit()
    return run_service("scheduler", settings, lambda: app(settings), version=VERSION)


if __name__ == "__main__":
    sys.exit(main())
