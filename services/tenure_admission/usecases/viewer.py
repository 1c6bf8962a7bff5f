"""Leases that exist for who asks, and the error of those that do not."""

from __future__ import annotations

from tenure_core.errors import NotFound
from tenure_core.identity.viewer import Viewer
from tenure_core.leases.lease import LeaseSpec


def may_change(viewer: Viewer | None, spec: LeaseSpec) -> bool:
    """Say whether a lease exists for who asks; None may change all."""
    return viewer is None or viewer.sees(spec.owner, spec.project, spec.pool)


def lease_not_found(lease_id: str) -> NotFound:
    """Return the error of a lease that does not exist, or that the caller may not see."""
    return NotFound("LEASE_NOT_FOUND", f"leases/{lease_id} does not exist.", lease=lease_id)
