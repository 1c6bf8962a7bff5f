"""`python -m tenure_admission`: settings, then serve."""

from __future__ import annotations

import sys

from tenure_admission.app import app
from tenure_admission.settings import AdmissionSettings
from tenure_runtime.process import run_service
from tenure_runtime.service_info import VERSION


def main() -> int:
    """Run admission until it is told to stop."""
    settings = AdmissionSettings.load_or_exit()
    return run_service("admission", settings, lambda: app(settings), version=VERSION)


if __name__ == "__main__":
    sys.exit(main())
