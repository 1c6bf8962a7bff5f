"""`tenure pool …`: list, create, set, delete; `tenure pool policy …` for how they are planned."""

from __future__ import annotations

from tenure_cli.commands import pool_change, pool_policy
from tenure_cli.commands.pool_group import pool

__all__ = ["pool", "pool_change", "pool_policy"]
