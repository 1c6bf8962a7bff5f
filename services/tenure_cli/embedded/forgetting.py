"""Removes all that a suite keeps, wherever it lies."""

from __future__ import annotations

import shutil
from pathlib import Path

from tenure_runtime.embedded.postgres import EmbeddedPostgres


async def forget(folder: Path) -> None:
    """Remove a suite's folder, and its database's cluster, which may lie elsewhere.

    As root, the cluster of a folder that the server's user may not enter is below /var/lib/tenure:
    removing the folder alone would leave it there for good.
    """
    if (folder / "postgres").exists():
        await EmbeddedPostgres(folder / "postgres").destroy()
    shutil.rmtree(folder, ignore_errors=True)
