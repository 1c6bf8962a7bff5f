"""Fixtures for all tests; they load what they need when they are used."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.support.databases import database_dsn, postgres_server

__all__ = ["database_dsn", "postgres_server"]

# The same examples each time, however slow the machine: what lands must not depend on luck.
# TENURE_EXPLORE=1 looks for new ones.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1_000)
settings.load_profile("explore" if os.environ.get("TENURE_EXPLORE") else "steady")

NEVER_SKIPPED = ("etcd", "postgres", "faults")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """With TENURE_NO_SKIPS, a test of etcd, PostgreSQL or faults that is skipped has failed.

    CI sets it: a skip there would let what these tests show go unseen.
    """
    report = yield
    needed = any(item.get_closest_marker(mark) for mark in NEVER_SKIPPED)
    if os.environ.get("TENURE_NO_SKIPS") and report.skipped and needed:
        report.outcome = "failed"
        report.longrepr = f"skipped where it must run: {report.longrepr}"
    return report
