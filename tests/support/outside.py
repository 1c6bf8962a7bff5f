"""Finds the data that comes from outside the repository: cases, golden results, workloads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]


def outside(variable: str, default: str) -> Path:
    """Return the folder that `variable` names, or the default beside the repository.

    Skips the test when the default is absent (the repository stands alone); a variable that is
    set and names no folder is an error.
    """
    named = os.environ.get(variable)
    if named:
        folder = Path(named)
        if not folder.is_dir():
            pytest.fail(f"{variable} names {folder}, which is no folder")
        return folder
    folder = _REPOSITORY.parent / "shared" / default
    if not folder.is_dir():
        pytest.skip(
            f"no outside data: {variable} is not set and {default} is absent",
            allow_module_level=True,
        )
    return folder


def cases(family: str) -> Path:
    """Return the folder of the case family, for example `backendai`."""
    return outside("TENURE_CASES", "cases") / family


def golden() -> Path:
    """Return the folder of golden schedules."""
    return outside("TENURE_GOLDEN", "golden")


def workloads() -> Path:
    """Return the folder of public traces."""
    return outside("TENURE_WORKLOADS", "workloads")
