"""`python -m tenure_slottable`: settings, then serve."""

from __future__ import annotations

import sys

from tenure_runtime.process import run_service
from tenure_runtime.service_info import VERSION
from tenure_slottable.app import app
from tenure_slottable.settings import SlottableSettings


def main() -> int:
    """Run slottable until it is told to stop."""
    settings = SlottableSettings.load_or_exit()
    return run_service("slottable", settings, lambda: app(settings), version=VERSION)


if __name__ == "__main__":
    sys.exit(main())
