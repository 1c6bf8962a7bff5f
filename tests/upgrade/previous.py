"""The release before this one: its code, taken from the history of this repository."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
from tests.tidy.source_reasons import REPOSITORY

from tenure_runtime.embedded.processes import ChildSpec

LANDED: Final = "tests/contract/landed/contracts.binpb"
"""Written by `make landed`, for a release: the commit that wrote it last is the previous one."""


def previous_release(folder: Path) -> Path:
    """Unpack the code of the previous release below `folder`; skips where there is no history."""
    commit = _git("log", "-1", "--format=%H", "--", LANDED).decode().strip()
    if not commit:
        pytest.skip("the history of this repository is not here")
    with tarfile.open(fileobj=BytesIO(_git("archive", commit, "libs", "services"))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", REPOSITORY, *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


def that_goes_back(release: Path) -> Path:
    """Give the release today's rule for schemas that it does not know, if it is older than that."""
    rule = Path("libs/tenure_runtime/postgres/migrate.py")
    if ".contract" not in (release / rule).read_text(encoding="utf-8"):
        shutil.copy(REPOSITORY / rule, release / rule)
    return release


def paths(release: Path) -> Mapping[str, str]:
    """Return the environment in which Python takes the release's code before today's."""
    return {"PYTHONPATH": f"{release / 'libs'}:{release / 'services'}"}


def of(release: Path, child: ChildSpec) -> ChildSpec:
    """Return a child that runs the release's code."""
    return replace(child, environment={**child.environment, **paths(release)})
