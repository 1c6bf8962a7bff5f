"""`tenure lease …`: create, get, list, watch, wait, update, cancel, explain, logs."""

from __future__ import annotations

from tenure_cli.commands import lease_ask, lease_see
from tenure_cli.commands.lease_group import lease

__all__ = ["lease", "lease_ask", "lease_see"]
