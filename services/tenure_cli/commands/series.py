"""`tenure series …`: create, list, show, cancel, update, export."""

from __future__ import annotations

from tenure_cli.commands import series_change, series_create
from tenure_cli.commands.series_group import series

__all__ = ["series", "series_change", "series_create"]
